/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See fake_native.h. A set-up of n ranks waits until all n of one id are inside, as the real one
 * does.
 */
#include "tests/unit/fake_native.h"

#include <stdlib.h>
#include <string.h>

#include "channels/bootstrap.h"
#include "strait/status.h"

struct fake_native fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
struct strait_gpu_functions strait_gpu_table;

struct strait_communicator {
	int rank, n_ranks;
	CUdevice device;
	atomic_bool aborted;
};

enum { MEETINGS = 64, POINTERS = 16 };

static struct meeting {
	uint8_t id[STRAIT_ID_BYTES];
	int n_inside;
} meetings[MEETINGS];
static int n_meetings;

static struct known_pointer {
	const void *pointer;
	int device;
} pointers[POINTERS];
static int n_pointers;

static char contexts[FAKE_DEVICES];
static __thread CUcontext current;
static __thread CUstreamCaptureMode capture_mode;

void fake_reset(void)
{
	memset((char *)&fake + offsetof(struct fake_native, n_events), 0,
	       sizeof(fake) - offsetof(struct fake_native, n_events));
	fake.fail_new_rank = fake.fail_issue_at = -1;
	n_meetings = n_pointers = 0;
	current = NULL;
	capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUcontext fake_primary(int ordinal)
{
	return (CUcontext)&contexts[ordinal];
}

void fake_set_current(CUcontext context)
{
	current = context;
}

CUcontext fake_current(void)
{
	return current;
}

CUstreamCaptureMode fake_capture_mode(void)
{
	return capture_mode;
}

CUstream fake_stream(CUgraph graph)
{
	CUgraph *stream = malloc(sizeof(*stream));

	*stream = graph;
	return (CUstream)stream;
}

void fake_know_pointer(const void *pointer, int device)
{
	pointers[n_pointers++] = (struct known_pointer){pointer, device};
}

static void log_event(enum fake_event_kind kind, int rank, CUstream stream,
		      const struct strait_request *request)
{
	struct fake_event *event = &fake.events[fake.n_events++ % FAKE_LOG];

	*event = (struct fake_event){.kind = kind, .rank = rank, .stream = stream};
	if (request)
		event->request = *request;
}

static void locked_event(enum fake_event_kind kind, int rank, CUstream stream)
{
	pthread_mutex_lock(&fake.lock);
	log_event(kind, rank, stream, NULL);
	pthread_mutex_unlock(&fake.lock);
}

/* The driver. */

static CUresult get_current(CUcontext *context)
{
	*context = current;
	return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext context)
{
	current = context;
	return CUDA_SUCCESS;
}

static CUresult get_device_of_context(CUdevice *device)
{
	if (!current)
		return CUDA_ERROR_INVALID_CONTEXT;
	*device = 100 + (int)((char *)current - contexts);
	return CUDA_SUCCESS;
}

static CUresult get_count(int *count)
{
	*count = FAKE_DEVICES;
	return CUDA_SUCCESS;
}

/* Devices are not numbered as their ordinals are, so that a mix-up shows. */
static CUresult get_device(CUdevice *device, int ordinal)
{
	*device = 100 + ordinal;
	return CUDA_SUCCESS;
}

static CUresult retain(CUcontext *context, CUdevice device)
{
	pthread_mutex_lock(&fake.lock);
	fake.n_retained++;
	pthread_mutex_unlock(&fake.lock);
	*context = (CUcontext)&contexts[device - 100];
	return CUDA_SUCCESS;
}

static CUresult release(CUdevice device)
{
	pthread_mutex_lock(&fake.lock);
	fake.n_retained--;
	pthread_mutex_unlock(&fake.lock);
	return CUDA_SUCCESS;
}

static CUresult exchange_mode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode before = capture_mode;

	capture_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

static CUresult capture_info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
			     CUgraph *graph, const CUgraphNode **dependencies,
			     size_t *n_dependencies)
{
	*graph = stream ? *(CUgraph *)stream : NULL;
	*status = *graph ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
	return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *event, unsigned flags)
{
	*event = malloc(1);
	fake.n_events_alive++;
	return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event)
{
	free(event);
	fake.n_events_alive--;
	return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream)
{
	locked_event(FAKE_RECORD, -1, stream);
	return CUDA_SUCCESS;
}

static CUresult event_wait(CUstream stream, CUevent event, unsigned flags)
{
	locked_event(FAKE_WAIT, -1, stream);
	return CUDA_SUCCESS;
}

static CUresult pointer_attributes(unsigned n, CUpointer_attribute *names, void **values,
				   CUdeviceptr pointer)
{
	for (int i = 0; i < n_pointers; i++)
		if ((CUdeviceptr)pointers[i].pointer == pointer) {
			*(unsigned *)values[0] =
				pointers[i].device < 0 ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
			*(int *)values[1] = pointers[i].device;
		}
	return CUDA_SUCCESS;
}

static CUresult get_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	*value = !fake.no_virtual_memory;
	return attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_INVALID_VALUE;
}

static CUresult granularity_of(size_t *granularity, const CUmemAllocationProp *properties,
			       CUmemAllocationGranularity_flags flags)
{
	*granularity = 2 << 20;
	return properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_INVALID_VALUE;
}

static CUresult memory_create(CUmemGenericAllocationHandle *handle, size_t bytes,
			      const CUmemAllocationProp *properties, unsigned long long flags)
{
	*handle = bytes;
	fake.n_created++;
	return bytes % (2 << 20) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult memory_release(CUmemGenericAllocationHandle handle)
{
	fake.n_created--;
	return CUDA_SUCCESS;
}

static CUresult address_reserve(CUdeviceptr *address, size_t bytes, size_t alignment,
				CUdeviceptr wish, unsigned long long flags)
{
	*address = ((CUdeviceptr)++fake.n_reserved) << 40;
	return CUDA_SUCCESS;
}

static CUresult address_free(CUdeviceptr address, size_t bytes)
{
	fake.n_reserved--;
	return CUDA_SUCCESS;
}

static CUresult memory_map(CUdeviceptr address, size_t bytes, size_t offset,
			   CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	fake.n_mapped++;
	return handle == bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult memory_unmap(CUdeviceptr address, size_t bytes)
{
	fake.n_mapped--;
	return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
			   size_t n)
{
	fake.n_access += (int)n;
	return CUDA_SUCCESS;
}

/* Device 3 reaches nobody. */
static CUresult can_access(int *reaches, CUdevice device, CUdevice peer)
{
	*reaches = device != 103 && peer != 103;
	return CUDA_SUCCESS;
}

static CUresult memory_alloc(CUdeviceptr *address, size_t bytes)
{
	fake.n_plain++;
	*address = 0x123000;
	return CUDA_SUCCESS;
}

static CUresult memory_free(CUdeviceptr address)
{
	if (address != 0x123000)
		return CUDA_ERROR_INVALID_VALUE;
	fake.n_plain--;
	return CUDA_SUCCESS;
}

static CUresult synchronize(void)
{
	return CUDA_SUCCESS;
}

int strait_gpu_load(void)
{
	if (fake.no_driver)
		return strait_fail(STRAIT_ERROR_CUDA, "the driver's own words");
	strait_gpu_table = (struct strait_gpu_functions){
		.cuCtxGetCurrent = get_current,
		.cuCtxSetCurrent = set_current,
		.cuCtxGetDevice = get_device_of_context,
		.cuCtxSynchronize = synchronize,
		.cuDeviceGetCount = get_count,
		.cuDeviceGet = get_device,
		.cuDeviceGetAttribute = get_attribute,
		.cuDeviceCanAccessPeer = can_access,
		.cuDevicePrimaryCtxRetain = retain,
		.cuDevicePrimaryCtxRelease = release,
		.cuThreadExchangeStreamCaptureMode = exchange_mode,
		.cuStreamGetCaptureInfo_ = capture_info,
		.cuEventCreate = event_create,
		.cuEventDestroy = event_destroy,
		.cuEventRecord = event_record,
		.cuStreamWaitEvent = event_wait,
		.cuPointerGetAttributes = pointer_attributes,
		.cuMemGetAllocationGranularity = granularity_of,
		.cuMemCreate = memory_create,
		.cuMemRelease = memory_release,
		.cuMemAddressReserve = address_reserve,
		.cuMemAddressFree = address_free,
		.cuMemMap = memory_map,
		.cuMemUnmap = memory_unmap,
		.cuMemSetAccess = set_access,
		.cuMemAlloc = memory_alloc,
		.cuMemFree = memory_free,
	};
	return 0;
}

int strait_gpu_check(CUresult result, const char *call)
{
	return result ? strait_fail(STRAIT_ERROR_CUDA, "%s gave %d", call, (int)result) : 0;
}

/* The bootstrap. */

int strait_bootstrap_id_create(uint8_t ret_id[STRAIT_ID_BYTES])
{
	static atomic_int n_ids;
	int number = atomic_fetch_add(&n_ids, 1);

	memset(ret_id, 0x5a, STRAIT_ID_BYTES);
	memcpy(ret_id, &number, sizeof(number));
	return 0;
}

int strait_bootstrap_id_check(const uint8_t id[STRAIT_ID_BYTES])
{
	return id[STRAIT_ID_BYTES - 1] == 0x5a ? 0
					       : strait_fail(STRAIT_ERROR_ARGUMENT, "a foreign id");
}

/* The communicator. */

static struct meeting *meeting_of(const uint8_t *id)
{
	for (int i = 0; i < n_meetings; i++)
		if (memcmp(meetings[i].id, id, STRAIT_ID_BYTES) == 0)
			return &meetings[i];
	memcpy(meetings[n_meetings].id, id, STRAIT_ID_BYTES);
	meetings[n_meetings].n_inside = 0;
	return &meetings[n_meetings++];
}

/* Waits in short turns, since whoever cancels does not know of the condition. */
static void wait_a_turn(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	pthread_cond_timedwait(&fake.changed, &fake.lock, &until);
}

static int meet(const struct strait_communicator_config *config)
{
	struct meeting *meeting = NULL;
	int r = 0;

	if (config->rank == fake.fail_new_rank)
		return strait_fail(STRAIT_ERROR_SYSTEM, "rank %d was told to fail", config->rank);
	if (config->n_ranks > 1) {
		meeting = meeting_of(config->id);
		meeting->n_inside++;
	}
	fake.n_waiting_new++;
	pthread_cond_broadcast(&fake.changed);
	while (r == 0 && (fake.hold_new || (meeting && meeting->n_inside < config->n_ranks))) {
		if (atomic_load(config->cancel))
			r = strait_fail(STRAIT_ERROR_REMOTE, "cancelled");
		else
			wait_a_turn();
	}
	fake.n_waiting_new--;
	pthread_cond_broadcast(&fake.changed);
	return r;
}

int strait_communicator_new(const struct strait_communicator_config *config,
			    struct strait_communicator **ret)
{
	int r;

	if (current != config->context || capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED)
		return strait_fail(STRAIT_ERROR_INTERNAL,
				   "set-up in a wrong context or capture mode");
	pthread_mutex_lock(&fake.lock);
	fake.max_blocks = config->max_blocks;
	strncpy(fake.name, config->name ? config->name : "", sizeof(fake.name) - 1);
	r = meet(config);
	if (r == 0) {
		*ret = calloc(1, sizeof(**ret));
		(*ret)->rank = config->rank;
		(*ret)->n_ranks = config->n_ranks;
		(*ret)->device = config->device;
		fake.n_alive++;
	}
	pthread_mutex_unlock(&fake.lock);
	return r;
}

struct strait_communicator *strait_communicator_free(struct strait_communicator *communicator)
{
	if (!communicator)
		return NULL;
	pthread_mutex_lock(&fake.lock);
	log_event(FAKE_FREE, communicator->rank, NULL, NULL);
	fake.n_alive--;
	pthread_mutex_unlock(&fake.lock);
	free(communicator);
	return NULL;
}

int strait_communicator_issue(struct strait_communicator *communicator,
			      const struct strait_request *request)
{
	int r = 0;

	pthread_mutex_lock(&fake.lock);
	fake.n_blocked_issue++;
	pthread_cond_broadcast(&fake.changed);
	while (fake.block_issue && !atomic_load(&communicator->aborted))
		wait_a_turn();
	fake.n_blocked_issue--;
	if (fake.n_issued++ == fake.fail_issue_at)
		r = strait_fail(STRAIT_ERROR_CUDA, "told to fail");
	else
		log_event(FAKE_ISSUE, communicator->rank, request->stream, request);
	pthread_mutex_unlock(&fake.lock);
	return r;
}

void strait_communicator_abort(struct strait_communicator *communicator)
{
	atomic_store(&communicator->aborted, true);
}

int strait_communicator_error(const struct strait_communicator *communicator)
{
	return fake.async_error;
}

int strait_communicator_rank(const struct strait_communicator *communicator)
{
	return communicator->rank;
}

int strait_communicator_n_ranks(const struct strait_communicator *communicator)
{
	return communicator->n_ranks;
}

CUdevice strait_communicator_device(const struct strait_communicator *communicator)
{
	return communicator->device;
}

const char *strait_communicator_path(const struct strait_communicator *communicator,
				     const struct strait_request *request)
{
	return "fake path";
}
