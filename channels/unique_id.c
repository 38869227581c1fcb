/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing and reading unique ids, and what else tells builds and roots apart: the linker's build
 * id, a nonce, a hash.
 */
#include "channels/unique_id.h"
#include "strait/status.h"
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>
#include <sys/random.h>

#define ID_MAGIC UINT64_C(0x6449746961727453) /* "StraitId" */
enum { ID_VERSION = 1, ID_OFFSET = STRAIT_ID_BYTES - sizeof(struct strait_unique_id) };

uint64_t strait_hash_bytes(const void *bytes, size_t n)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

	for (size_t i = 0; i < n; i++)
		hash = (hash ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
	return hash;
}

int strait_random_bytes(void *ret, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t r = getrandom((char *)ret + done, n - done, 0);

		if (r < 0 && errno != EINTR)
			return strait_fail(STRAIT_ERROR_SYSTEM, "getrandom: %s", strerror(errno));
		if (r > 0)
			done += (size_t)r;
	}
	return 0;
}

void strait_unique_id_write(const struct strait_address *root,
			    const uint8_t nonce[STRAIT_NONCE_BYTES], unsigned flags,
			    uint8_t ret_id[STRAIT_ID_BYTES])
{
	struct strait_unique_id id = {
		.magic = ID_MAGIC, .version = ID_VERSION, .flags = (uint16_t)flags, .root = *root};

	memcpy(id.nonce, nonce, sizeof(id.nonce));
	id.checksum = strait_hash_bytes(&id, offsetof(struct strait_unique_id, checksum));
	memset(ret_id, 0, STRAIT_ID_BYTES);
	memcpy(ret_id + ID_OFFSET, &id, sizeof(id));
}

static bool is_zero(const uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (bytes[i])
			return false;
	return true;
}

int strait_unique_id_read(const uint8_t id[STRAIT_ID_BYTES], struct strait_unique_id *ret)
{
	struct strait_unique_id ours;

	memcpy(&ours, id + ID_OFFSET, sizeof(ours));
	if (is_zero(id, STRAIT_ID_BYTES))
		return strait_fail(STRAIT_ERROR_ARGUMENT,
				   "the unique id is all zero: it never came from ncclGetUniqueId");
	if (ours.magic != ID_MAGIC)
		return strait_fail(STRAIT_ERROR_ARGUMENT,
				   "the unique id was not made by Strait but by another library "
				   "(NCCL?): load Strait "
				   "in the process that calls ncclGetUniqueId too");
	if (ours.version != ID_VERSION)
		return strait_fail(STRAIT_ERROR_ARGUMENT,
				   "the unique id has version %u, this build of Strait reads %u: "
				   "use one build on all "
				   "ranks",
				   ours.version, ID_VERSION);
	if (ours.checksum !=
		    strait_hash_bytes(&ours, offsetof(struct strait_unique_id, checksum)) ||
	    (ours.root.family != 4 && ours.root.family != 6 && !(ours.flags & STRAIT_ID_NO_ROOT)))
		return strait_fail(STRAIT_ERROR_ARGUMENT,
				   "the unique id is damaged (check sum): all %d bytes must be "
				   "copied to the ranks",
				   STRAIT_ID_BYTES);
	if (!is_zero(id, ID_OFFSET))
		return strait_fail(STRAIT_ERROR_ARGUMENT,
				   "the unique id was made by a Strait that works beside NCCL; "
				   "this one works alone: "
				   "set STRAIT_NCCL alike on all ranks");
	*ret = ours;
	return 0;
}

/* Finds the loaded object that holds this function, and hashes its build id note. */
static int hash_build_id(struct dl_phdr_info *object, size_t bytes, void *ret_hash)
{
	uintptr_t here = (uintptr_t)&hash_build_id;
	bool is_ours = false;

	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
		uintptr_t begin = object->dlpi_addr + segment->p_vaddr;

		is_ours |= segment->p_type == PT_LOAD && here >= begin &&
			   here - begin < segment->p_memsz;
	}
	for (int i = 0; is_ours && i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
		const char *note = (const char *)(object->dlpi_addr + segment->p_vaddr);
		const char *end = note + segment->p_memsz;

		while (segment->p_type == PT_NOTE && end - note >= (ptrdiff_t)sizeof(ElfW(Nhdr))) {
			const ElfW(Nhdr) *head = (const ElfW(Nhdr) *)note;
			const char *name = note + sizeof(*head);
			const char *body = name + ((head->n_namesz + 3) & ~3u);

			if (head->n_type == NT_GNU_BUILD_ID && head->n_namesz == 4 &&
			    !memcmp(name, "GNU", 4))
				*(uint64_t *)ret_hash = strait_hash_bytes(body, head->n_descsz);
			note = body + ((head->n_descsz + 3) & ~3u);
		}
	}
	return is_ours;
}

uint64_t strait_build_hash(void)
{
	/* Without a note, what the compiler knows of the source is all there is. */
	uint64_t hash = strait_hash_bytes(__FILE__ __VERSION__, sizeof(__FILE__ __VERSION__));

	dl_iterate_phdr(hash_build_id, &hash);
	return hash ? hash : 1;
}

int strait_bootstrap_id_check(const uint8_t id[STRAIT_ID_BYTES])
{
	struct strait_unique_id unused;

	return strait_unique_id_read(id, &unused);
}
