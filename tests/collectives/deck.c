/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of an algorithm are found by asking its shape function, so a new algorithm needs
 * nothing here. */
#include "tests/collectives/deck.h"
#include "channels/layout.h"
#include <inttypes.h>
#include <string.h>

enum { MOST_SEARCHED = 16 << 20, N_RANDOM_COUNTS = 8 };

/* Of elements; -1, 0 and 1 stand for the number of ranks less one and so on. */
static const int classic_counts[] = {0, 1, 2, 3, 7, 127, 129, 1023, 8191, 8193, 65537, 1048577};
enum { N_CLASSIC = sizeof(classic_counts) / sizeof(*classic_counts), N_OF_RANKS = 3 };

static struct strait_shape shape_of(const struct deck *deck, uint64_t bytes, bool *ret_fits)
{
	struct strait_shape shape = {0};

	*ret_fits = deck->algorithm->shape(&deck->limits, bytes, &shape);
	return shape;
}

static void add_edge(struct deck *deck, uint64_t bytes)
{
	if (bytes && bytes <= MOST_SEARCHED && deck->n_edges < DECK_MOST_EDGES)
		deck->edges[deck->n_edges++] = bytes;
}

static bool is_beyond_blocks(const struct deck *deck, uint64_t bytes, unsigned n_blocks)
{
	bool fits;
	struct strait_shape shape = shape_of(deck, bytes, &fits);

	return !fits || shape.n_blocks > n_blocks;
}

/* The largest size with at most so many blocks; for the most of blocks, the largest that the
 * algorithm takes. */
static void add_edge_of_blocks(struct deck *deck, unsigned n_blocks)
{
	uint64_t good = 1, bad = MOST_SEARCHED;

	if (is_beyond_blocks(deck, good, n_blocks) || !is_beyond_blocks(deck, bad, n_blocks))
		return;
	while (bad - good > 1) {
		uint64_t middle = good + (bad - good) / 2;

		if (is_beyond_blocks(deck, middle, n_blocks))
			bad = middle;
		else
			good = middle;
	}
	add_edge(deck, good);
}

static uint64_t round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

/* The smallest size from which on the shape stays the same, so that more data means more steps of
 * it; 0: none. */
static uint64_t step_bytes(const struct deck *deck)
{
	uint64_t bad = 0, good = MOST_SEARCHED / 2;
	bool fits, fits_larger;
	struct strait_shape largest = shape_of(deck, MOST_SEARCHED, &fits_larger);
	struct strait_shape shape = shape_of(deck, good, &fits);

	if (!fits || !fits_larger || memcmp(&shape, &largest, sizeof(shape)) != 0)
		return 0;
	while (good - bad > 1) {
		uint64_t middle = bad + (good - bad) / 2;

		shape = shape_of(deck, middle, &fits);
		if (fits && memcmp(&shape, &largest, sizeof(shape)) == 0)
			good = middle;
		else
			bad = middle;
	}
	return good;
}

static void find_edges(struct deck *deck)
{
	static const unsigned steps[] = {1, 2, 3, 5};
	uint64_t step = step_bytes(deck);

	for (unsigned b = 1; b <= deck->limits.max_blocks; b++)
		add_edge_of_blocks(deck, b);
	/* A word or a few for each thread, of one block and of one rank's part. */
	for (unsigned i = 1; i <= 4; i *= 2)
		add_edge(deck, 8ul * deck->limits.max_threads * i);
	add_edge(deck, 16ul * deck->limits.max_threads * (unsigned)deck->limits.n_ranks);
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++)
		add_edge(deck, step * steps[i]);
	/* A unit of every thread, rank and block: chunks are rounded to it. */
	step = round_up(step, 16ul * deck->limits.max_threads * deck->limits.max_blocks *
				      (unsigned)deck->limits.n_ranks);
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++)
		add_edge(deck, step * steps[i]);
}

static void shuffle(struct deck *deck, int *indices, int n)
{
	for (int i = 0; i < n; i++)
		indices[i] = i;
	for (int i = n - 1; i > 0; i--) {
		int j = (int)(rig_random(&deck->random) % (unsigned)(i + 1)), kept = indices[i];

		indices[i] = indices[j];
		indices[j] = kept;
	}
}

void deck_init(struct deck *deck, const struct strait_algorithm *algorithm,
	       const struct deck_limits *limits, double most_cost, uint64_t seed)
{
	const uint64_t which = (uint64_t)(algorithm - strait_algorithms);
	struct strait_layout layout;

	memset(deck, 0, sizeof(*deck));
	deck->algorithm = algorithm;
	deck->most_cost = most_cost;
	deck->random = rig_mix(seed, (uint64_t)limits->n_ranks * 1000 + which);
	if (strait_layout_compute(limits->n_ranks, (int)limits->blocks, limits->scratch_bytes,
				  &layout))
		rig_die("%" PRIu64 " bytes of scratch are too few", limits->scratch_bytes);
	deck->limits = (struct strait_limits){.n_ranks = limits->n_ranks,
					      .max_blocks = limits->blocks,
					      .max_threads = limits->threads,
					      .packet_slot_bytes = layout.packet_slot_bytes,
					      .bulk_slot_bytes = layout.bulk_slot_bytes};
	find_edges(deck);
	deck->n_counts = N_CLASSIC + N_OF_RANKS + 3 * deck->n_edges + N_RANDOM_COUNTS;
	shuffle(deck, deck->counts, deck->n_counts);
	shuffle(deck, deck->pairs, DECK_PAIRS);
}

static size_t count_number(struct deck *deck, int i, size_t size)
{
	if (i < N_CLASSIC)
		return (size_t)classic_counts[i];
	i -= N_CLASSIC;
	if (i < N_OF_RANKS)
		return (size_t)(deck->limits.n_ranks - 1 + i);
	i -= N_OF_RANKS;
	if (i < 3 * deck->n_edges)
		return deck->edges[i / 3] / size + (size_t)(i % 3) - 1;
	return rig_random(&deck->random) % (1ul << (4 + rig_random(&deck->random) % 12));
}

static void set_pair(struct collective_case *c, int pair)
{
	int reduction = pair / STRAIT_N_TYPES;

	c->type = (enum strait_type)(pair % STRAIT_N_TYPES);
	c->device_scalar = reduction == STRAIT_N_REDUCTIONS;
	c->reduction = c->device_scalar ? STRAIT_PREMULSUM : (enum strait_reduction_kind)reduction;
}

/* Sent packets or pushed and collected words, over all ranks and calls. */
static double cost(const struct deck *deck, const struct collective_case *c)
{
	double n = c->n_ranks,
	       words = (double)c->count * (double)strait_reference_type_bytes(c->type) / 8;
	bool one_shot = strcmp(deck->algorithm->name, "allreduce_ll") == 0;

	return c->n_calls * words * n * (one_shot ? 2 * (n - 1) : 4);
}

static void draw_rest(struct deck *deck, struct collective_case *c)
{
	uint64_t dice = rig_random(&deck->random);

	c->n_ranks = deck->limits.n_ranks;
	c->k = rig_random(&deck->random) % 1000;
	c->placement = dice % 3 ? rig_random(&deck->random) % 1000000 + 1 : 0;
	c->in_place = dice >> 8 & 1;
	c->graph = dice >> 9 & 1;
	c->group = dice >> 10 & 1;
	c->n_calls = c->graph ? 3 : 1 + (int)(dice >> 11 & 1);
}

void deck_deal(struct deck *deck, struct collective_case *ret)
{
	struct collective_case c = {0};

	set_pair(&c, deck->pairs[deck->next_pair++ % DECK_PAIRS]);
	do {
		int count = deck->counts[deck->next_count++ % deck->n_counts];

		c.count = count_number(deck, count, strait_reference_type_bytes(c.type));
		draw_rest(deck, &c);
	} while (cost(deck, &c) > deck->most_cost);
	*ret = c;
}

bool deck_walk(struct deck *deck, uint64_t *position, struct collective_case *ret)
{
	struct collective_case c = {0};

	do {
		uint64_t i = (*position)++;

		if (i >= (uint64_t)DECK_PAIRS * (unsigned)deck->n_counts)
			return false;
		set_pair(&c, (int)(i % DECK_PAIRS));
		c.count = count_number(deck, (int)(i / DECK_PAIRS),
				       strait_reference_type_bytes(c.type));
		draw_rest(deck, &c);
	} while (cost(deck, &c) > deck->most_cost);
	*ret = c;
	return true;
}

bool deck_is_native(const struct deck *deck, const struct collective_case *c)
{
	bool fits = false, is_copy = c->n_ranks == 1 && c->reduction != STRAIT_PREMULSUM;

	if (c->count && !is_copy)
		shape_of(deck, c->count * strait_reference_type_bytes(c->type), &fits);
	return fits;
}
