/* SPDX-License-Identifier: Apache-2.0 */
/* strait-bench: the launcher, or one of the processes that it started. */
#include "bench/launcher.h"
#include "bench/worker.h"

int main(int argc, char **argv)
{
	struct bench_options options;
	bool done;
	int status = bench_options_parse(argc, argv, &options, &done);

	if (done)
		return status;
	return options.worker ? bench_work(argc, argv, &options)
			      : bench_launch(argc, argv, &options);
}
