/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The short set of cases that every mutant of the kernels has to fail: sums over 2 and 3 ranks, and
 * series of sends of one rank alone, around the renewal of the packet inboxes, with another seed of
 * the emulator for each process.
 *
 *   mutation-cases FIRST:N SECONDS      stops at the first failure with code 1 and says which seed
 * it took
 */
#include "tests/collectives/case.h"
#include "algorithms/algorithm.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SENDS = 8, MOST_WORDS = 4000, N_RENEWALS = 8 };

struct job {
	const char *algorithm;
	unsigned long seed;
	unsigned limit_s; /* a longer wait is a hang */
};

static void sum_calls(struct rig *rig, const struct job *job, size_t count, int n_calls)
{
	struct collective_case c = {.n_ranks = rig->n_ranks,
				    .type = STRAIT_FLOAT32,
				    .count = count,
				    .k = job->seed,
				    .n_calls = n_calls};

	rig_note("%s, seed %lu, %d ranks: %zu elements", job->algorithm, job->seed, rig->n_ranks,
		 count);
	case_run(rig, &c);
}

static uint64_t word(unsigned long seed, int call, size_t i)
{
	return rig_mix(seed, (uint64_t)call) + i * 0x100000001u;
}

/* All calls of a rank before those of the next, so that the sender runs ahead as far as it may. */
static void send_calls(struct rig *rig, const struct job *job, size_t n_words)
{
	static uint64_t words[N_SENDS * MOST_WORDS];
	const size_t bytes = n_words * sizeof(*words);

	rig_note("%s, seed %lu, %d ranks: %zu words one way", job->algorithm, job->seed,
		 rig->n_ranks, n_words);
	rig_reserve(rig, N_SENDS * bytes);
	memset(words, 0, sizeof(words));
	for (int r = 1; r < rig->n_ranks; r++)
		rig_copy_in(rig, r, rig->ranks[r].arenas[1], words, N_SENDS * bytes);
	for (int call = 0; call < N_SENDS; call++)
		for (size_t i = 0; i < n_words; i++)
			words[(size_t)call * n_words + i] = word(job->seed, call, i);
	rig_copy_in(rig, 0, rig->ranks[0].arenas[0], words, N_SENDS * bytes);
	for (int r = 0; r < rig->n_ranks; r++)
		for (int call = 0; call < N_SENDS; call++) {
			rig_enter(rig, r);
			RIG_NCCL(ncclAllReduce(
				(void *)(rig->ranks[r].arenas[0] + (size_t)call * bytes),
				(void *)(rig->ranks[r].arenas[1] + (size_t)call * bytes), n_words,
				ncclInt64, ncclSum, rig->ranks[r].comm,
				(cudaStream_t)rig->ranks[r].stream));
		}
	rig_wait(rig);
	for (int r = 0; r < rig->n_ranks; r++) {
		rig_copy_out(rig, r, words, rig->ranks[r].arenas[1], N_SENDS * bytes);
		for (int call = 0; call < N_SENDS; call++)
			for (size_t i = 0; i < n_words; i++)
				if (words[(size_t)call * n_words + i] != word(job->seed, call, i))
					rig_die("rank %d, call %d: word %zu is wrong", r, call, i);
	}
}

/* A new communicator starts shortly before its inboxes are cleared, and the sender waits for just
 * that. */
static void renew(const struct job *job)
{
	struct rig rig;

	rig_init(&rig, 2);
	sum_calls(&rig, job, 65, 1);
	send_calls(&rig, job, 400);
	rig_deinit(&rig);
}

static void run(void *argument)
{
	const struct job *job = argument;
	char text[32];
	struct rig rig;

	snprintf(text, sizeof(text), "%lu", job->seed);
	setenv("STRAIT_EMULATOR_SEED", text, 1);
	snprintf(text, sizeof(text), "%lu", (1ul << 20) - 3 - job->seed % 3);
	setenv("STRAIT_EPOCH_START", text, 1);
	setenv("STRAIT_ALGORITHM", job->algorithm, 1);
	setenv("STRAIT_SCRATCH_SIZE", "1M", 1);
	setenv("STRAIT_SKIP_PROBE", "1", 1);
	rig_limit(job->limit_s);
	if (strcmp(job->algorithm, "allreduce_ll") == 0)
		for (int i = 0; i < N_RENEWALS; i++)
			renew(job);
	rig_init(&rig, 2 + (int)(job->seed & 1));
	sum_calls(&rig, job, 65, 1);
	if (strcmp(job->algorithm, "allreduce_ll_twoshot") != 0)
		send_calls(&rig, job, MOST_WORDS);
	sum_calls(&rig, job, 3001, 3);
	sum_calls(&rig, job, 20000, 1);
	rig_deinit(&rig);
}

int main(int argc, char **argv)
{
	unsigned long first, n;
	unsigned limit_s;

	if (argc != 3 || sscanf(argv[1], "%lu:%lu", &first, &n) != 2 ||
	    sscanf(argv[2], "%u", &limit_s) != 1)
		return 2;
	for (unsigned long seed = first; seed < first + n; seed++)
		for (const struct strait_algorithm *a = strait_algorithms; a->name; a++) {
			struct job job = {a->name, seed, limit_s};

			if (!rig_fork(run, &job)) {
				printf("caught after %lu seeds by %s\n", seed - first + 1, a->name);
				return 1;
			}
		}
	printf("%lu seeds passed\n", n);
	return 0;
}
