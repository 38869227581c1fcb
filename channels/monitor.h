/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread of the process that watches the connections of all bootstraps handed to it. It sends a
 * heartbeat every 2 s on each, takes a connection that closes without a goodbye, or is silent for
 * 10 s after it was heard once, for the loss of the rank behind it, and passes a loss on to all
 * neighbours, so that every rank learns of it in log2(n) hops.
 *
 * The thread starts with the first bootstrap and is joined when the last is removed. A forked child
 * has none. A process that exits with 0 says goodbye for the bootstraps it still has: leaving
 * without a destroy is no loss.
 */
#pragma once
#include "channels/rendezvous.h"

int strait_monitor_add(struct strait_bootstrap *bootstrap);
/* The thread touches the object no more. Fine for one that was never added. */
void strait_monitor_remove(struct strait_bootstrap *bootstrap);
