/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executable graphs: instantiate, launch, update, destroy. Launches of one run one after the other,
 * on whatever streams.
 */
#include "emulator/capture.h"
#include "emulator/program.h"
#include <stdlib.h>
#include <string.h>

#define MAGIC 0x65786563u

struct CUgraphExec_st {
	uint64_t magic;
	struct strait_emu_program *program; /* under the stream lock */
	struct strait_emu_signal *last;     /* end of the latest launch, or NULL */
};

static CUresult check(CUgraphExec exec)
{
	if (!strait_emu_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	return exec && exec->magic == MAGIC ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *ret_exec, CUgraph graph, unsigned long long flags)
{
	CUcontext context;
	CUresult error = strait_emu_context_enter(&context);
	if (error)
		return error;
	if (!ret_exec || !graph)
		return CUDA_ERROR_INVALID_VALUE;
	struct CUgraphExec_st *exec = calloc(1, sizeof *exec);
	if (!exec)
		return CUDA_ERROR_OUT_OF_MEMORY;
	exec->magic = MAGIC;
	strait_emu_stream_lock();
	exec->program = strait_emu_program_new(graph);
	strait_emu_stream_unlock();
	if (!exec->program) {
		free(exec);
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret_exec = exec;
	return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
				      CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult error = cuGraphInstantiateWithFlags(exec, graph, params->flags);
	params->result_out = error ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
	return error;
}

static CUresult launch(CUgraphExec exec, CUstream stream)
{
	struct strait_emu_signal *end = strait_emu_signal_new();
	if (!end)
		return CUDA_ERROR_OUT_OF_MEMORY;
	strait_emu_stream_meet_legacy(stream);
	if (exec->last && !strait_emu_signal_test(exec->last)) {
		struct strait_emu_work *work = strait_emu_work_new(NULL);
		if (!work)
			abort();
		work->wait = strait_emu_signal_ref(exec->last);
		strait_emu_stream_append(stream, work);
	}
	atomic_fetch_add(&exec->program->references, 1);
	strait_emu_signal_unref(exec->last);
	exec->last = strait_emu_signal_ref(end);
	if (strait_emu_program_launch(exec->program, stream, end) != 0)
		abort();
	return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
	CUstream stream;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	if (!error)
		error = check(exec);
	if (error)
		return error;
	strait_emu_stream_lock();
	error = strait_emu_capture_check(stream);
	if (!error && stream->capture) {
		strait_emu_capture_invalidate(stream->capture);
		error = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	if (!error)
		error = launch(exec, stream);
	strait_emu_stream_unlock();
	return error;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream handle)
{
	CUstream stream;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	return error ? error : check(exec);
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	CUresult error = check(exec);
	if (error)
		return error;
	strait_emu_stream_lock();
	exec->magic = 0;
	struct strait_emu_program *program = exec->program;
	strait_emu_signal_unref(exec->last);
	strait_emu_stream_unlock();
	strait_emu_program_unref(program);
	free(exec);
	return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *result)
{
	CUresult error = check(exec);
	if (error)
		return error;
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	strait_emu_stream_lock();
	struct strait_emu_program *program = strait_emu_program_new(graph), *spare = program;
	int alike = program && strait_emu_program_alike(program, exec->program);
	if (alike) {
		spare = exec->program;
		exec->program = program;
	}
	strait_emu_stream_unlock();
	strait_emu_program_unref(spare);
	if (result) {
		memset(result, 0, sizeof *result);
		result->result = alike ? CU_GRAPH_EXEC_UPDATE_SUCCESS
				       : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	}
	return alike ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}
