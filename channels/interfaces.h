/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which network interface the bootstrap uses. As NCCL chooses: NCCL_SOCKET_IFNAME if set; else
 * anything but lo and docker*, then docker*, then lo, so that a machine without a network works
 * too. IPv4 goes before IPv6, and a routable IPv6 address before a link-local one.
 */
#pragma once
#include "channels/socket.h"

/* `names` as NCCL_SOCKET_IFNAME (NULL or "": the default order): prefixes, comma-separated; a
 * leading ^ excludes, a leading = (after the ^) wants exact names. In an including list, the
 * earlier name wins. `family`: "AF_INET", "AF_INET6" or NULL. The port of the address is 0.
 * STRAIT_ERROR_ARGUMENT: none fits; the message lists what there is. */
int strait_interface_choose(const char *names, const char *family,
			    struct strait_address *ret_address);

/* 4, 6, or 0 for any: the meaning of NCCL_SOCKET_FAMILY. */
int strait_interface_family(const char *family);
