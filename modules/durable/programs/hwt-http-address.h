/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which addresses hwt-http may connect to.
 *
 *   1. A host whose name --deny has is refused.
 *   2. One whose name --allow has may have any address.
 *   3. Otherwise the longest network that has the address decides, of those of
 *      --allow, those of --deny and our own. Of two that are as long, --deny
 *      counts before --allow, and --allow before ours.
 *
 * Ours refuse what is not of the public internet: addresses of the machine and
 * of private networks, link-local ones, multicast, what is reserved, tunnels
 * that hide an IPv4 address, and the metadata services of clouds.
 */
#ifndef HWT_DURABLE_HTTP_ADDRESS_H
#define HWT_DURABLE_HTTP_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

struct address_rules;

/* Reads --allow and --deny: lists of networks, addresses, names of hosts, and
 * names that begin with a point and mean all hosts below, with commas between;
 * NULL: not given. Ends the process if one makes no sense. */
struct address_rules *address_rules_read(const char *allow, const char *deny);

void address_rules_free(struct address_rules *rules);

/* Whether host, which the address was found for, may be connected to there.
 * Only IPv4 and IPv6 are. */
bool address_is_allowed(const struct address_rules *rules, const char *host,
    const struct sockaddr *address);

#endif
