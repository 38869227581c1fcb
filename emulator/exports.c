/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuGetProcAddress, over the table of exports.def. A function of <cuda.h> that is not in it is a
 * stub that says so once and returns CUDA_ERROR_NOT_SUPPORTED.
 */
#include "emulator/exports.h"
#include "emulator/settings.h"
#include "emulator/versions.h"
#include <stdatomic.h>
#include <string.h>

#define DRIVER_VERSION 13000

static const struct {
	const char *name;
	void *function;
	int since;
} table[] = {
#define EXPORT(name) {#name, (void *)name, 0},
#define EXPORT_SINCE(name, function, since) {#name, (void *)function, since},
#include "emulator/exports.def"
#undef EXPORT
#undef EXPORT_SINCE
};

int strait_emu_exports_missing(const char *name, _Atomic int *said)
{
	if (!atomic_exchange(said, 1))
		strait_emu_say("%s is not there", name);
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* The newest signature that the caller can know. */
static void *find(const char *name, int version, int *ret_known)
{
	void *function = NULL;
	int since = -1;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		if (strcmp(table[i].name, name) != 0)
			continue;
		*ret_known = 1;
		if (table[i].since <= version && table[i].since > since) {
			since = table[i].since;
			function = table[i].function;
		}
	}
	return function;
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *status)
{
	int known = 0;
	if (!name || !function)
		return CUDA_ERROR_INVALID_VALUE;
	void *found = version <= DRIVER_VERSION ? find(name, version, &known) : NULL;
	if (!found && !known && version <= DRIVER_VERSION)
		found = strait_emu_exports_stub(name);
	*function = found;
	if (status)
		*status = found ? CU_GET_PROC_ADDRESS_SUCCESS
			  : known || version > DRIVER_VERSION
				  ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
				  : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags)
{
	return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
