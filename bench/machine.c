/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of host and driver. The emulator is recognised by a symbol that only it exports. */
#include "bench/machine.h"
#include "bench/report.h"
#include "strait/gpu.h"
#include "strait/status.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static bool driver_is_emulator(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	return driver && dlsym(driver, "strait_emu_self");
}

static void read_devices(struct bench_machine *machine)
{
	CUdevice device;
	int major = 0, minor = 0;

	if (strait_gpu->cuDeviceGetCount(&machine->n_devices) || machine->n_devices == 0 ||
	    strait_gpu->cuDeviceGet(&device, 0)) {
		snprintf(machine->problem, sizeof(machine->problem), "the driver sees no device");
		return;
	}
	machine->driver = true;
	strait_gpu->cuDriverGetVersion(&machine->driver_version);
	strait_gpu->cuDeviceGetName(machine->gpu, sizeof(machine->gpu), device);
	strait_gpu->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
					 device);
	strait_gpu->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
					 device);
	machine->capability = 10 * major + minor;
	machine->emulator = driver_is_emulator();
}

void bench_machine_read(struct bench_machine *ret)
{
	memset(ret, 0, sizeof(*ret));
	gethostname(ret->host, sizeof(ret->host) - 1);
	if (strait_gpu_load() < 0)
		snprintf(ret->problem, sizeof(ret->problem), "%.250s", strait_status_message());
	else
		read_devices(ret);
}

void bench_machine_probe(struct bench_machine *ret)
{
	struct bench_machine *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
					    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child;
	int status = 0;

	if (shared == MAP_FAILED)
		bench_die("out of memory");
	child = fork();
	if (child == 0) {
		bench_machine_read(shared);
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) < 0)
		bench_die("cannot start a process");
	*ret = *shared;
	munmap(shared, sizeof(*shared));
	if (status != 0) {
		ret->driver = false;
		snprintf(ret->problem, sizeof(ret->problem),
			 "opening the driver ended the process (status 0x%x)", status);
	}
}
