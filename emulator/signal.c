/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals, on a futex of the process.
 */
#include "emulator/signal.h"
#include "emulator/device.h"
#include "emulator/sanitizer.h"
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

struct strait_emu_signal *strait_emu_signal_new(void)
{
	struct strait_emu_signal *signal = calloc(1, sizeof *signal);
	if (signal)
		signal->references = 1;
	return signal;
}

struct strait_emu_signal *strait_emu_signal_ref(struct strait_emu_signal *signal)
{
	if (signal)
		atomic_fetch_add(&signal->references, 1);
	return signal;
}

struct strait_emu_signal *strait_emu_signal_unref(struct strait_emu_signal *signal)
{
	if (signal && atomic_fetch_sub(&signal->references, 1) == 1)
		free(signal);
	return NULL;
}

void strait_emu_signal_set(struct strait_emu_signal *signal)
{
	signal->time_ns = strait_emu_clock_ns();
	strait_emu_tsan_release(signal);
	atomic_store(&signal->set, 1);
	if (atomic_load(&signal->waiters))
		syscall(SYS_futex, &signal->set, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void strait_emu_signal_wait(struct strait_emu_signal *signal)
{
	if (strait_emu_signal_test(signal)) {
		strait_emu_tsan_acquire(signal);
		return;
	}
	atomic_fetch_add(&signal->waiters, 1);
	while (!strait_emu_signal_test(signal))
		syscall(SYS_futex, &signal->set, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
	atomic_fetch_sub(&signal->waiters, 1);
	strait_emu_tsan_acquire(signal);
}
