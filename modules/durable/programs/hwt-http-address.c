/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "hwt-http-address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "options.h"
#include "text.h"

#define NAME_MAX_LENGTH 253

/* An IPv4 network is that of the mapped addresses, ::ffff:a.b.c.d: so those are
 * not another way to the same host. */
#define MAPPED_BITS 96

struct rule {
	struct in6_addr network;
	uint32_t bits;
	char *name; /* or NULL: a network */
	bool allow;
};

struct address_rules {
	struct rule *rule;
	size_t count;
};

/* From the registries of special-purpose addresses of IANA; global unicast
 * addresses of IPv6 are those of 2000::/3. 168.63.129.16 is Azure's; the other
 * metadata services are in these networks. */
static const char refused[] =
    "0.0.0.0/8,10.0.0.0/8,100.64.0.0/10,127.0.0.0/8,169.254.0.0/16,"
    "172.16.0.0/12,192.0.0.0/24,192.0.2.0/24,192.88.99.0/24,192.168.0.0/16,"
    "198.18.0.0/15,198.51.100.0/24,203.0.113.0/24,224.0.0.0/4,240.0.0.0/4,"
    "168.63.129.16,"
    "::/3,4000::/2,8000::/1,2001::/23,2001:db8::/32,2002::/16,3fff::/20";

/* All of IPv4 but the above; and the same behind a translator (NAT64), where
 * the IPv4 address within is looked at, too. */
static const char not_refused[] = "0.0.0.0/0,64:ff9b::/96";

static const uint8_t translator[12] = {0x00, 0x64, 0xff, 0x9b};

static struct in6_addr
mapped(const struct in_addr *address)
{
	struct in6_addr result = {0};

	memset(result.s6_addr + 10, 0xff, 2);
	memcpy(result.s6_addr + 12, address, sizeof(*address));
	return result;
}

static bool
has_bits(const struct in6_addr *a, const struct in6_addr *b, uint32_t bits)
{
	uint32_t whole = bits / 8, rest = bits % 8;
	uint8_t mask = (uint8_t)(0xff00u >> rest);

	return memcmp(a->s6_addr, b->s6_addr, whole) == 0 &&
	    (rest == 0 ||
		((a->s6_addr[whole] ^ b->s6_addr[whole]) & mask) == 0);
}

/* No bit is set that the network does not fix. */
static bool
is_network(const struct rule *rule)
{
	struct in6_addr none = {0};
	uint32_t i;

	for (i = 0; i < rule->bits / 8; i++)
		none.s6_addr[i] = rule->network.s6_addr[i];
	if (rule->bits % 8 != 0)
		none.s6_addr[i] = (uint8_t)(rule->network.s6_addr[i] &
		    (0xff00u >> (rule->bits % 8)));
	return memcmp(&none, &rule->network, sizeof(none)) == 0;
}

/* Cuts the word at its slash. */
static bool
network_read(struct rule *rule, char *word)
{
	struct in_addr four;
	char *slash = strchr(word, '/');
	uint64_t bits;
	uint32_t before = 0;

	if (slash != NULL)
		*slash = '\0';
	if (inet_pton(AF_INET, word, &four) == 1) {
		rule->network = mapped(&four);
		before = MAPPED_BITS;
	} else if (inet_pton(AF_INET6, word, &rule->network) != 1)
		return false;
	bits = 128 - before;
	if (slash != NULL && !text_number(slash + 1, 0, bits, &bits))
		return false;
	rule->bits = before + (uint32_t)bits;
	return is_network(rule);
}

/* What ends as an address of IPv4 is none: 1.2.3. */
static bool
is_name(const char *word)
{
	const char *last = strrchr(word, '.');

	last = last != NULL ? last + 1 : word;
	return word[0] != '\0' && strlen(word) <= NAME_MAX_LENGTH &&
	    word[strspn(word,
		"abcdefghijklmnopqrstuvwxyz"
		"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] == '\0' &&
	    strspn(last, "0123456789") < strlen(last);
}

static void *
memory(void *got)
{
	if (got != NULL)
		return got;
	complain("no memory");
	exit(STATUS_NO);
}

/* Adds those of a list, which --option has. */
static void
rules_add(struct address_rules *rules, const char *option, const char *list,
    bool allow)
{
	char *copy = memory(strdup(list)), *rest = copy, *word;
	struct rule *rule;

	while (rest != NULL) {
		word = strsep(&rest, ",");
		rules->rule = memory(
		    reallocarray(rules->rule, rules->count + 1, sizeof(*rule)));
		rule = &rules->rule[rules->count++];
		*rule = (struct rule){.allow = allow};
		if (is_name(word))
			rule->name = memory(strdup(word));
		else if (!network_read(rule, word))
			usage_error("--%s: %s is no host, address or network "
				    "(without bits behind its length)",
			    option, list + (word - copy));
	}
	free(copy);
}

struct address_rules *
address_rules_read(const char *allow, const char *deny)
{
	struct address_rules *rules = memory(calloc(1, sizeof(*rules)));

	rules_add(rules, "", not_refused, true);
	rules_add(rules, "", refused, false);
	if (allow != NULL)
		rules_add(rules, "allow", allow, true);
	if (deny != NULL)
		rules_add(rules, "deny", deny, false);
	return rules;
}

void
address_rules_free(struct address_rules *rules)
{
	while (rules->count > 0)
		free(rules->rule[--rules->count].name);
	free(rules->rule);
	free(rules);
}

/* A point at the end of a host's name means the same host. */
static bool
has_name(const struct rule *rule, const char *host)
{
	size_t length = strlen(host), wanted = strlen(rule->name);

	if (length > 0 && host[length - 1] == '.')
		length--;
	if (rule->name[0] == '.' && length > wanted) {
		host += length - wanted;
		length = wanted;
	}
	return length == wanted && strncasecmp(host, rule->name, wanted) == 0;
}

/* The last rule for the name decides; NULL: there is none. */
static const struct rule *
rule_of_name(const struct address_rules *rules, const char *host)
{
	const struct rule *found = NULL;
	size_t i;

	for (i = 0; i < rules->count; i++) {
		if (rules->rule[i].name != NULL &&
		    has_name(&rules->rule[i], host))
			found = &rules->rule[i];
	}
	return found;
}

/* What no rule has is a global unicast address of IPv6. */
static bool
network_is_allowed(
    const struct address_rules *rules, const struct in6_addr *address)
{
	const struct rule *rule, *found = NULL;
	size_t i;

	for (i = 0; i < rules->count; i++) {
		rule = &rules->rule[i];
		if (rule->name == NULL &&
		    has_bits(address, &rule->network, rule->bits) &&
		    (found == NULL || rule->bits >= found->bits))
			found = rule;
	}
	return found == NULL || found->allow;
}

bool
address_is_allowed(const struct address_rules *rules, const char *host,
    const struct sockaddr *address)
{
	const struct rule *named = rule_of_name(rules, host);
	struct in6_addr six;
	struct in_addr four;

	if (address->sa_family == AF_INET)
		six =
		    mapped(&((const struct sockaddr_in *)(const void *)address)
				->sin_addr);
	else if (address->sa_family == AF_INET6)
		six = ((const struct sockaddr_in6 *)(const void *)address)
			  ->sin6_addr;
	else
		return false;
	if (named != NULL)
		return named->allow;
	if (!network_is_allowed(rules, &six))
		return false;
	if (memcmp(six.s6_addr, translator, sizeof(translator)) != 0)
		return true;
	memcpy(&four, six.s6_addr + 12, sizeof(four));
	six = mapped(&four);
	return network_is_allowed(rules, &six);
}
