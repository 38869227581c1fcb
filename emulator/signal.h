/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A signal is set once, by the stream that comes to it, and waited for by other streams and by the
 * host. Each record of an event makes a new one. Counted.
 */
#pragma once
#include <stdatomic.h>
#include <stdint.h>

struct strait_emu_signal {
	_Atomic unsigned references;
	_Atomic uint32_t set;
	_Atomic uint32_t waiters;
	uint64_t time_ns; /* when it was set */
};

struct strait_emu_signal *strait_emu_signal_new(void); /* NULL: no memory */
struct strait_emu_signal *strait_emu_signal_ref(struct strait_emu_signal *signal);
struct strait_emu_signal *strait_emu_signal_unref(struct strait_emu_signal *signal);
void strait_emu_signal_set(struct strait_emu_signal *signal);
void strait_emu_signal_wait(struct strait_emu_signal *signal);
static inline int strait_emu_signal_test(struct strait_emu_signal *signal)
{
	return atomic_load(&signal->set) != 0;
}
