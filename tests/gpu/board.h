/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared memory between the launcher and the processes of the ranks: which case each rank is in,
 * what it does there, why it failed, and the verdict of each case. Each entry is written by its own
 * rank; verdicts by rank 0.
 */
#pragma once
#include <stdatomic.h>

enum { BOARD_RANKS = 64, BOARD_CASES = 64, BOARD_TEXT = 400 };

enum verdict { VERDICT_NONE, VERDICT_PASS, VERDICT_SKIP };

struct board_entry {
	atomic_int case_now; /* -1: none yet */
	atomic_int failed;   /* reason is set */
	atomic_int dying;    /* the case wants this process to die; what follows is no fault */
	char phase[BOARD_TEXT];
	char reason[BOARD_TEXT];
};

struct board {
	struct board_entry ranks[BOARD_RANKS];
	struct {
		atomic_int verdict;
		char text[BOARD_TEXT];
	} cases[BOARD_CASES];
};

int board_create(void); /* a descriptor that stays open across exec */
struct board *board_map(int fd);
