/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stand-ins for what shim/ stands on: a driver with four devices, the communicator and the
 * bootstrap. They keep a log of what they were asked, in order, and fail or wait where a test says
 * so. Each replaces the library's own object file as a whole.
 */
#pragma once
#include "algorithms/communicator.h"
#include "strait/gpu.h"
#include <pthread.h>

enum { FAKE_DEVICES = 4, FAKE_LOG = 8192 };

enum fake_event_kind { FAKE_ISSUE, FAKE_RECORD, FAKE_WAIT, FAKE_FREE };

struct fake_event {
	enum fake_event_kind kind;
	int rank; /* of the communicator; ISSUE and FREE */
	CUstream stream;
	struct strait_request request;
};

struct fake_native {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int n_events;
	struct fake_event events[FAKE_LOG];

	int fail_new_rank;   /* strait_communicator_new() of this rank fails at once; -1: none */
	int hold_new;        /* it waits until 0 or cancelled */
	int n_waiting_new;   /* how many set-ups wait */
	int fail_issue_at;   /* the n-th issue fails; -1: none */
	int block_issue;     /* issue waits until the communicator is aborted */
	int n_blocked_issue; /* how many issues wait */
	int n_issued;
	int n_alive;        /* communicators */
	int async_error;    /* what strait_communicator_error() says */
	int max_blocks;     /* the newest configuration's */
	char name[32];      /* likewise */
	int n_retained;     /* primary contexts */
	int n_events_alive; /* CUDA events */
	int n_mapped, n_created, n_reserved, n_access;
	int no_driver;
	int no_virtual_memory;
	int n_plain; /* allocations of cuMemAlloc */
};

extern struct fake_native fake;

/* Everything as at the start; no thread may be inside. */
void fake_reset(void);

/* A device's primary context, to make it current by fake_set_current(); NULL: none. */
CUcontext fake_primary(int ordinal);
void fake_set_current(CUcontext context);
CUcontext fake_current(void);
CUstreamCaptureMode fake_capture_mode(void);

/* A stream; captured when `graph` is not NULL. Freed by nobody. */
CUstream fake_stream(CUgraph graph);
/* Makes cuPointerGetAttributes() know an address. device -1: registered host memory. */
void fake_know_pointer(const void *pointer, int device);
