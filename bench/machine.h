/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the lines of a measurement were measured on. The launcher asks in a short-lived child, so
 * that it never holds the driver itself: a process that has opened it may not fork, and must not
 * come before MPS.
 */
#pragma once
#include <stdbool.h>

struct bench_machine {
	bool driver; /* a driver was found and has a device */
	bool emulator;
	int n_devices, driver_version, capability; /* 12080: 12.8; 90: 9.0 */
	char host[64], gpu[64];
	char problem[256]; /* why there is no driver */
};

void bench_machine_probe(struct bench_machine *ret);
/* The same in this process, where the driver is open already or may be opened. */
void bench_machine_read(struct bench_machine *ret);
