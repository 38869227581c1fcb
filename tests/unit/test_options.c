/* SPDX-License-Identifier: Apache-2.0 */
/* The benchmark's command line. */
#include "bench/options.h"
#include "bench/operation.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

/* Parses a line of words; the messages of a refused one are thrown away. */
static int parse(const char *line, struct bench_options *ret, bool *ret_done)
{
	static char words[512];
	char *argv[64] = {"strait-bench"};
	int argc = 1, status, saved_out = dup(1), saved_err = dup(2);

	snprintf(words, sizeof(words), "%s", line);
	for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	fflush(stdout);
	assert_non_null(freopen("/dev/null", "w", stdout));
	assert_non_null(freopen("/dev/null", "w", stderr));
	status = bench_options_parse(argc, argv, ret, ret_done);
	fflush(NULL);
	dup2(saved_out, 1);
	dup2(saved_err, 2);
	close(saved_out);
	close(saved_err);
	return status;
}

static struct bench_options parsed(const char *line)
{
	struct bench_options options;
	bool done;

	assert_int_equal(parse(line, &options, &done), 0);
	assert_false(done);
	return options;
}

static void expect_refused(const char *line)
{
	struct bench_options options;
	bool done;

	if (parse(line, &options, &done) != 2 || !done)
		fail_msg("accepted: %s", line);
}

static void test_sizes_have_powers_of_1024(void **state)
{
	static const struct {
		const char *text;
		int64_t bytes;
	} sizes[] = {{"17", 17},        {"4K", 4096},        {"4k", 4096},   {"1M", 1 << 20},
		     {"1.5M", 3 << 19}, {"2G", 2LL << 30},   {"1KiB", 1024}, {"8B", 8},
		     {"1T", 1LL << 40}, {"64MB", 64LL << 20}};
	int64_t bytes;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		assert_int_equal(bench_size_parse(sizes[i].text, &bytes), 0);
		assert_int_equal(bytes, sizes[i].bytes);
	}
}

static void test_what_is_no_size_is_refused(void **state)
{
	static const char *const texts[] = {"",    "K",   "-1",   "1X", "1KK",
					    "nan", "inf", "1e30", "4K4"};
	int64_t bytes = 77;

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		assert_int_equal(bench_size_parse(texts[i], &bytes), -1);
	assert_int_equal(bytes, 77);
}

static void test_nccl_tests_options_are_known_in_both_forms(void **state)
{
	struct bench_options a = parsed(
		"-b 8 -e 1M -f 2 -n 7 -w 3 -m 4 -N 2 -c 0 -d half -o max -r 1 -z 1 -G 20 -t 2 "
		"-g 3 -p 1 -C 1 -a 3 -u 5 -R 1 -T 9");
	struct bench_options b =
		parsed("--minbytes 8 --maxbytes 1M --stepfactor 2 --iters 7 --warmup_iters 3 "
		       "--agg_iters 4 --run_cycles 2 --check 0 --datatype half --op max --root 1 "
		       "--blocking 1 --cudagraph 20 --nthreads 2 --ngpus 3 --parallel_init 1 "
		       "--report_cputime 1 --average 3 --offset 5 --local_register 1 --limit 9");

	assert_memory_equal(&a, &b, sizeof(a));
	assert_int_equal(a.min_bytes, 8);
	assert_int_equal(a.max_bytes, 1 << 20);
	assert_int_equal(a.iterations, 7);
	assert_int_equal(a.types, 1 << STRAIT_FLOAT16);
	assert_int_equal(a.reductions, 1 << STRAIT_MAX);
	assert_int_equal(a.graph_launches, 20);
	assert_true(a.parallel_init && a.cpu_time);
}

static void test_types_and_reductions_are_lists_aliases_or_all(void **state)
{
	struct bench_options options = parsed("-d fp16,bf16,int -o sum,mulsum");

	assert_int_equal(options.types,
			 1 << STRAIT_FLOAT16 | 1 << STRAIT_BFLOAT16 | 1 << STRAIT_INT32);
	assert_int_equal(options.reductions, 1 << STRAIT_SUM | 1 << STRAIT_PREMULSUM);
	assert_false(options.all_types);
	options = parsed("-d all -o all");
	assert_int_equal(options.types, (1 << STRAIT_N_TYPES) - 1);
	assert_int_equal(options.reductions, (1 << STRAIT_N_REDUCTIONS) - 1);
	assert_true(options.all_types);
}

static void test_op_takes_an_operation_or_a_reduction(void **state)
{
	assert_string_equal(parsed("--op all_reduce").operation->name, "all_reduce");
	assert_int_equal(parsed("--op all_reduce").reductions, 1 << STRAIT_SUM);
	assert_int_equal(parsed("--op min").reductions, 1 << STRAIT_MIN);
	assert_string_equal(parsed("--op min").operation->name, "all_reduce");
}

static void test_bad_options_are_refused(void **state)
{
	static const char *const lines[] = {"-d complex",  "-o sum,what",
					    "-n 0",        "-n x",
					    "-f 1",        "-b -5",
					    "--ranks 0",   "-c -1",
					    "-a 4",        "--nonsense",
					    "stray",       "-b",
					    "-d ,",        "--operation teleport",
					    "-b 2K -e 1K", "-z 4",
					    "--limit 0",   "-r -2",
					    "-p 2"};

	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
		expect_refused(lines[i]);
}

static void test_help_ends_with_success(void **state)
{
	struct bench_options options;
	bool done;

	assert_int_equal(parse("--help -d complex", &options, &done), 0);
	assert_true(done);
}

static void test_the_emulator_gets_small_defaults_and_keeps_what_was_said(void **state)
{
	struct bench_options gpu = parsed("-n 9"), emulator = gpu, only_max = parsed("-e 16"),
			     only_min = parsed("-b 1G");

	bench_options_resolve(&gpu, false);
	bench_options_resolve(&emulator, true);
	assert_int_equal(gpu.max_bytes, 64 << 20);
	assert_int_equal(emulator.max_bytes, 16 << 10);
	assert_int_equal(gpu.iterations, 9);
	assert_int_equal(emulator.iterations, 9);
	assert_true(emulator.samples < gpu.samples);
	bench_options_resolve(&only_max, false);
	assert_int_equal(only_max.min_bytes, 16);
	bench_options_resolve(&only_min, false);
	assert_int_equal(only_min.max_bytes, 1 << 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes_have_powers_of_1024),
		cmocka_unit_test(test_what_is_no_size_is_refused),
		cmocka_unit_test(test_nccl_tests_options_are_known_in_both_forms),
		cmocka_unit_test(test_types_and_reductions_are_lists_aliases_or_all),
		cmocka_unit_test(test_op_takes_an_operation_or_a_reduction),
		cmocka_unit_test(test_bad_options_are_refused),
		cmocka_unit_test(test_help_ends_with_success),
		cmocka_unit_test(test_the_emulator_gets_small_defaults_and_keeps_what_was_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
