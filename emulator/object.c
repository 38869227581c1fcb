/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects: making, importing, counting. All calls are under the memory lock (memory.h).
 */
#include "emulator/object.h"
#include "emulator/machine.h"
#include "emulator/settings.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x7374726169746f62ul
#define LABEL_BYTES 4096ul

struct label { /* in the last page of the file */
	uint64_t magic, bytes, id, device;
};

static size_t used[STRAIT_EMU_DEVICES];

size_t strait_emu_object_used(unsigned device)
{
	return used[device];
}

static struct strait_emu_object *object_of(int fd, const struct label *label)
{
	struct strait_emu_object *object = calloc(1, sizeof *object);
	if (!object)
		return NULL;
	object->fd = fd;
	object->references = 1;
	object->bytes = label->bytes;
	object->device = (unsigned)label->device;
	object->id = label->id;
	return object;
}

/* So that a program which takes new memory for zero finds out. */
static int poison(int fd, size_t bytes)
{
	static char page[65536];
	memset(page, 0xff, sizeof page);
	for (size_t done = 0; done < bytes; done += sizeof page)
		if (pwrite(fd, page, sizeof page, (off_t)done) != sizeof page)
			return -1;
	return 0;
}

struct strait_emu_object *strait_emu_object_new(unsigned device, size_t bytes)
{
	size_t limit = (size_t)strait_emu_settings_get()->memory_mib << 20;
	if (bytes > limit || used[device] > limit - bytes)
		return NULL;
	int fd = memfd_create("strait-emulator-memory", MFD_CLOEXEC);
	if (fd < 0)
		return NULL;
	struct label label = {MAGIC, bytes, strait_emu_machine_id(), device};
	struct strait_emu_object *object = NULL;
	if (ftruncate(fd, (off_t)(5 * bytes + LABEL_BYTES)) == 0 &&
	    pwrite(fd, &label, sizeof label, (off_t)(5 * bytes)) == sizeof label &&
	    (!strait_emu_settings_get()->poison || poison(fd, bytes) == 0))
		object = object_of(fd, &label);
	if (object)
		used[device] += bytes;
	else
		close(fd);
	return object;
}

struct strait_emu_object *strait_emu_object_import(int fd)
{
	struct stat status;
	struct label label;
	if (fstat(fd, &status) != 0 || (size_t)status.st_size <= LABEL_BYTES)
		return NULL;
	off_t offset = status.st_size - (off_t)LABEL_BYTES;
	if (pread(fd, &label, sizeof label, offset) != sizeof label || label.magic != MAGIC ||
	    label.bytes * 5 != (size_t)offset || label.device >= STRAIT_EMU_DEVICES)
		return NULL;
	struct strait_emu_object *object = object_of(fd, &label);
	if (object)
		object->imported = 1;
	return object;
}

struct strait_emu_object *strait_emu_object_ref(struct strait_emu_object *object)
{
	object->references++;
	return object;
}

struct strait_emu_object *strait_emu_object_unref(struct strait_emu_object *object)
{
	if (!object || --object->references)
		return NULL;
	if (!object->imported)
		used[object->device] -= object->bytes;
	close(object->fd);
	free(object);
	return NULL;
}
