/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages on a bootstrap connection. Each has a head that says what follows, who sends it and in
 * which step of which collective, so that ranks out of step are told so instead of reading each
 * other's bytes as data.
 *
 * A connection opens with a greeting of fixed size. Its first 32 bytes, the frame's head and the
 * verdict never change: that is how any two builds can tell each other that they do not fit. All
 * numbers are little-endian, as every machine with an NVIDIA GPU is.
 */
#pragma once
#include "channels/socket.h"
#include <sys/uio.h>

enum {
	STRAIT_PROTOCOL = 1,
	STRAIT_NONCE_BYTES = 16,
	STRAIT_VERDICT_TEXT = 256,
};
#define STRAIT_GREETING_MAGIC UINT64_C(0x6f6c6c6548727453) /* "StrHello" */
#define STRAIT_FRAME_MAGIC UINT32_C(0x66727453)            /* "Strf" */

enum strait_greeting_kind { STRAIT_GREETING_JOIN = 1, STRAIT_GREETING_PEER = 2 };

struct strait_greeting {
	uint64_t magic;
	uint32_t protocol, bytes;
	uint8_t nonce[STRAIT_NONCE_BYTES];
	/* what follows may change with the protocol */
	uint64_t build;
	uint32_t kind;
	int32_t rank, n_ranks;
	int32_t step;                  /* PEER: which of the sender's neighbours this is */
	struct strait_address address; /* JOIN: where the rank listens */
};
_Static_assert(sizeof(struct strait_greeting) == 80, "travels between processes");

enum strait_frame_type {
	STRAIT_FRAME_NEIGHBOURS = 1, /* root to rank: addresses of rank - 2^k, for each k */
	STRAIT_FRAME_READY,          /* rank to root: all connections stand */
	STRAIT_FRAME_GO,             /* root to rank: so they do on every rank */
	STRAIT_FRAME_VERDICT,        /* a failure, as a struct strait_verdict; nothing follows */
	STRAIT_FRAME_GOODBYE,        /* the sender leaves and is well; nothing follows */
	STRAIT_FRAME_GATHER,
	STRAIT_FRAME_BARRIER,
	STRAIT_FRAME_HEARTBEAT,
	STRAIT_FRAME_LOST, /* the rank in `step` is lost */
};

struct strait_frame {
	uint32_t magic;
	uint32_t type;
	int32_t rank;  /* sender; -1: the root */
	uint32_t step; /* number of the collective * 32 + step in it */
	uint64_t bytes;
};
_Static_assert(sizeof(struct strait_frame) == 24, "travels between processes");

struct strait_verdict {
	int32_t status;
	char text[STRAIT_VERDICT_TEXT];
};

const char *strait_frame_name(uint32_t type);

/* Receives small frames piece by piece without waiting. Zero it before use. */
struct strait_inbox {
	size_t got;
	struct strait_frame head;
	union {
		struct strait_verdict verdict;
		struct strait_address neighbours[32];
		uint8_t bytes[32 * sizeof(struct strait_address)];
	} body;
};
enum {
	STRAIT_INBOX_EMPTY = 0,
	STRAIT_INBOX_FULL = 1,
	STRAIT_INBOX_CLOSED = 2,
	STRAIT_INBOX_GARBLED = 3
};

/* One of the above. FULL: head and body hold a frame; call strait_inbox_clear() before the next
 * read. */
int strait_inbox_read(struct strait_inbox *inbox, int fd);
void strait_inbox_clear(struct strait_inbox *inbox);

/* Sends a small frame or nothing, at once. False: the connection is broken or its buffer full. */
bool strait_frame_post(int fd, uint32_t type, int rank, uint32_t step, const void *body,
		       size_t bytes);
void strait_frame_post_verdict(int fd, int rank, int status, const char *text);

/* Waits for one small frame of `type` (a verdict is returned as the failure it tells of) into
 * `inbox`. `who` names the other end for messages. */
int strait_frame_receive(int fd, uint32_t type, struct strait_inbox *inbox,
			 const struct strait_wait *wait, const char *who);

/* One direction of an exchange: a frame and its data in up to two pieces. */
struct strait_transfer {
	int fd, peer;
	struct strait_frame head; /* sent; or what is expected */
	struct iovec data[2];
	bool is_partial; /* after a failure: some bytes of the frame went out, nothing else may
			    follow */
};

/* Sends and receives at the same time. What comes must have the head that is expected. */
int strait_frame_exchange(struct strait_transfer *send, struct strait_transfer *receive,
			  const struct strait_wait *wait);
