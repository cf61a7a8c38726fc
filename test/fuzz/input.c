/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes to numbers. An input that has come to its end reads as zeros. */
#include "test/fuzz/fuzz.h"

uint8_t
input_byte(void)
{
	return fuzz.at < fuzz.end ? *fuzz.at++ : 0;
}

/* Short encodings for the values that matter: the first byte says how many
 * bytes follow, where they go, and what is added. */
uint64_t
input_word(void)
{
	uint8_t how = input_byte();
	unsigned bytes = how % 4 == 3 ? 8 : how % 4;
	uint64_t word = 0;

	while (bytes-- > 0)
		word = word << 8 | input_byte();
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

bool
input_chance(unsigned one_in)
{
	return input_byte() % one_in == one_in - 1;
}

uint64_t
input_delay(const struct fuzz_timer *timer)
{
	uint64_t word = input_word();

	switch (word % 8) {
	case 0:
		return word / 8;
	case 1:
		return word / 8 * HWT_US(10);
	case 2:
		return HWT_NEVER;
	case 3: /* round about the end of the clock */
		return (UINT64_C(1) << 63) - timer->now_ns + 2 - word / 8 % 5;
	case 4:
		return HWT_MS(word / 8 % 4096);
	case 5:
		return word >> 1;
	default:
		return word;
	}
}

/* A slot's handle, or {0}. */
static hwt_timeout
slot_handle(uint8_t number)
{
	if (fuzz.slot_count == 0)
		return (hwt_timeout){0};
	return fuzz.slots[number % fuzz.slot_count].handle;
}

/* The newest timeout of that timer that has not ended: what most calls want. */
static hwt_timeout
live_handle(unsigned timer, unsigned skip)
{
	unsigned i = fuzz.slot_count;

	while (i-- > 0) {
		const struct slot *slot = &fuzz.slots[i];

		if (slot->timer == timer && !slot->ended && skip-- == 0)
			return slot->handle;
	}
	return (hwt_timeout){0};
}

hwt_timeout
input_handle(unsigned timer)
{
	uint8_t how = input_byte();
	hwt_timeout handle;

	switch (how % 8) {
	case 5: /* of whatever timer, ended or not */
		return slot_handle(input_byte());
	case 6:
		handle = slot_handle(how / 8);
		handle.id ^= UINT64_C(1) << input_byte() % 64;
		return handle;
	case 7:
		return (hwt_timeout){input_word()};
	default:
		return live_handle(timer, how / 8);
	}
}
