/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Secrets, and a keyed hash for modules, SipHash-1-3 (Aumasson and Bernstein,
 * 2012): whoever knows hashes but not the secret cannot compute others, nor
 * choose inputs whose hashes are alike.
 */
#ifndef HWT_SECRET_H
#define HWT_SECRET_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#ifdef __linux__
#include <sys/auxv.h>
#include <sys/random.h>
#include <time.h>
#endif

struct secret {
	uint64_t word[2];
};

static inline uint64_t
secret_rotate(uint64_t x, unsigned bits)
{
	return x << bits | x >> (64 - bits);
}

static inline void
secret_round(uint64_t v[4])
{
	v[0] += v[1];
	v[2] += v[3];
	v[1] = secret_rotate(v[1], 13) ^ v[0];
	v[3] = secret_rotate(v[3], 16) ^ v[2];
	v[0] = secret_rotate(v[0], 32) + v[3];
	v[2] += v[1];
	v[3] = secret_rotate(v[3], 21) ^ v[0];
	v[1] = secret_rotate(v[1], 17) ^ v[2];
	v[2] = secret_rotate(v[2], 32);
}

static inline void
secret_absorb(uint64_t v[4], uint64_t block)
{
	v[3] ^= block;
	secret_round(v);
	v[0] ^= block;
}

static inline void
secret_begin(const struct secret *secret, uint64_t v[4])
{
	v[0] = secret->word[0] ^ UINT64_C(0x736f6d6570736575);
	v[1] = secret->word[1] ^ UINT64_C(0x646f72616e646f6d);
	v[2] = secret->word[0] ^ UINT64_C(0x6c7967656e657261);
	v[3] = secret->word[1] ^ UINT64_C(0x7465646279746573);
}

/* The last block has the length in its highest byte. */
static inline uint64_t
secret_end(uint64_t v[4], uint64_t last)
{
	secret_absorb(v, last);
	v[2] ^= 0xff;
	secret_round(v);
	secret_round(v);
	secret_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

#ifdef __linux__

/* Where getrandom gives nothing, since a sandbox refuses it or the system has
 * just been started: from the 16 random bytes that the kernel gives to each
 * program (AT_RANDOM), the time, and the secret's address, so that no two of a
 * process are the same. */
static inline void
secret_derive(struct secret *secret)
{
	const unsigned char *given =
	    (const unsigned char *)(uintptr_t)getauxval(AT_RANDOM);
	struct secret of_process = {{0, 0}};
	struct timespec now = {0, 0};
	uint64_t v[4];
	unsigned i;

	for (i = 0; given != NULL && i < 16; i++)
		of_process.word[i / 8] |= (uint64_t)given[i] << i % 8 * 8;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	secret_begin(&of_process, v);
	secret_absorb(
	    v, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
	secret->word[0] = secret_end(v, (uintptr_t)secret);
	secret->word[1] = secret_end(v, 1);
}

/* Never waits: a server may start before the system has collected enough
 * randomness. */
static inline void
secret_make(struct secret *secret)
{
	if (getrandom(secret, sizeof(*secret), GRND_NONBLOCK) !=
	    (ssize_t)sizeof(*secret))
		secret_derive(secret);
}

#else

static inline void
secret_make(struct secret *secret)
{
	arc4random_buf(secret, sizeof(*secret));
}

#endif

#endif
