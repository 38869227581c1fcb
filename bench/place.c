/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of environment variables that name ranks. */
#include "bench/place.h"
#include "bench/report.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct starter {
	const char *rank, *size, *local_rank, *local_size, *job;
};

/* In this order: torchrun may run under srun, and both leave SLURM's variables. */
static const struct starter starters[] = {
	{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
	{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
	 "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"},
	{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_JOBID"},
};

static int number(const char *variable, int fallback)
{
	const char *text = getenv(variable);

	return text ? atoi(text) : fallback;
}

/* Ranks of one host meet at an abstract Unix socket named for the job; the parent (mpirun) tells
 * jobs apart where the starter gives them no name. */
static void find_rendezvous(const struct starter *starter, const char *rendezvous,
			    struct bench_place *ret)
{
	const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT"),
		   *job = getenv(starter->job);
	int size = sizeof(ret->rendezvous);
	char parent[16];

	snprintf(parent, sizeof(parent), "%d", (int)getppid());
	if (!job || strcmp(job, "none") == 0)
		job = parent;

	if (rendezvous)
		snprintf(ret->rendezvous, size, "tcp:%s", rendezvous);
	else if (ret->n_local == ret->n_processes)
		snprintf(ret->rendezvous, size, "unix:strait-bench-%u-%.40s-%.8s", getuid(), job,
			 port ? port : "");
	else if (host && port)
		snprintf(ret->rendezvous, size, "tcp:%.120s:%d", host, atoi(port) + 1);
	else
		bench_die(
			"ranks on several hosts: say where they meet with --rendezvous HOST:PORT");
}

bool bench_place_external(struct bench_place *ret, const char *rendezvous)
{
	for (size_t i = 0; i < sizeof(starters) / sizeof(*starters); i++) {
		const struct starter *starter = &starters[i];

		if (!getenv(starter->rank) || !getenv(starter->size))
			continue;
		memset(ret, 0, sizeof(*ret));
		ret->board_fd = -1;
		ret->process = number(starter->rank, 0);
		ret->n_processes = number(starter->size, 1);
		ret->local = number(starter->local_rank, ret->process);
		ret->n_local = number(starter->local_size, ret->n_processes);
		if (ret->process < 0 || ret->process >= ret->n_processes || ret->local < 0)
			bench_die("%s and %s do not make sense", starter->rank, starter->size);
		find_rendezvous(starter, rendezvous, ret);
		return true;
	}
	return false;
}

void bench_place_print(const struct bench_place *place, char *ret, int size)
{
	snprintf(ret, (size_t)size, "%d/%d,%d/%d,%dx%d,%d,%s", place->process, place->n_processes,
		 place->local, place->n_local, place->n_threads, place->n_gpus, place->board_fd,
		 place->rendezvous);
}

void bench_place_parse(const char *text, struct bench_place *ret)
{
	if (sscanf(text, "%d/%d,%d/%d,%dx%d,%d,%159s", &ret->process, &ret->n_processes,
		   &ret->local, &ret->n_local, &ret->n_threads, &ret->n_gpus, &ret->board_fd,
		   ret->rendezvous) != 8)
		bench_die("--worker is for the launcher only");
}
