/* SPDX-License-Identifier: Apache-2.0 */
/* Choices: random ones, or those that bytes make. See model.h. */
#include "test/model/model.h"
#include "test/rng.h"

static struct rng rng;
static const uint8_t *at, *end;

void
choices_from(const struct model_options *options)
{
	rng.state = options->seed;
	at = options->bytes;
	end = at != NULL ? at + options->size : NULL;
}

bool
choices_are_over(void)
{
	return at != NULL && at == end;
}

static uint8_t
next_byte(void)
{
	return at < end ? *at++ : 0;
}

/* Short for the values that matter: the first byte says how many bytes follow,
 * where they go, and what is added. */
static uint64_t
next_word(void)
{
	uint8_t how = next_byte();
	unsigned bytes = how % 4 == 3 ? 8 : how % 4;
	uint64_t word = 0;

	while (bytes-- > 0)
		word = word << 8 | next_byte();
	switch (how >> 2 & 3) {
	case 1:
		return word << (how >> 4) * 4;
	case 2:
		return (UINT64_C(1) << (how >> 4) * 4) - word;
	case 3:
		return UINT64_MAX - (word << (how >> 4));
	default:
		return word;
	}
}

uint64_t
any_word(void)
{
	return at != NULL ? next_word() : rng_next(&rng);
}

uint64_t
any_word_of(unsigned bits)
{
	uint64_t word = any_word();

	return word >> (64 - bits + any_below(bits));
}

uint64_t
any_below(uint64_t bound)
{
	if (at != NULL && bound <= 256)
		return next_byte() % bound;
	return any_word() % bound;
}
