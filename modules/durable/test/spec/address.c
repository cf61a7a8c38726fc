/* SPDX-License-Identifier: Apache-2.0 */
/* address: which addresses hwt-http may connect to. */
#include "modules/durable/programs/hwt-http-address.h"
#include "modules/durable/test/spec/durable.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

SUITE(address);

/* Whether each of the addresses of a list may be called for host. */
static void
expect(const struct address_rules *rules, const char *host, bool allowed,
    const char *list)
{
	struct sockaddr_in6 six = {.sin6_family = AF_INET6};
	struct sockaddr_in four = {.sin_family = AF_INET};
	const struct sockaddr *address;
	char word[64];
	size_t length;

	for (; *list != '\0'; list += length + (list[length] == ' ')) {
		length = strcspn(list, " ");
		cr_assert(length < sizeof(word));
		memcpy(word, list, length);
		word[length] = '\0';
		address = (const struct sockaddr *)&four;
		if (inet_pton(AF_INET, word, &four.sin_addr) != 1) {
			cr_assert(
			    inet_pton(AF_INET6, word, &six.sin6_addr) == 1,
			    "%s", word);
			address = (const struct sockaddr *)&six;
		}
		cr_assert(address_is_allowed(rules, host, address) == allowed,
		    "%s for %s", word, host);
	}
}

static void
expect_with(const char *allow, const char *deny, const char *allowed,
    const char *refused)
{
	struct address_rules *rules = address_rules_read(allow, deny);

	expect(rules, "a.example", true, allowed);
	expect(rules, "a.example", false, refused);
	address_rules_free(rules);
}

Test(address, public_ones_may_be_called)
{
	expect_with(NULL, NULL,
	    "1.1.1.1 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 "
	    "126.255.255.255 128.0.0.1 168.63.129.15 168.63.129.17 "
	    "169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 "
	    "191.255.255.255 192.0.1.0 192.0.3.0 192.88.98.1 192.88.100.1 "
	    "192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 "
	    "198.51.99.1 198.51.101.1 203.0.112.1 203.0.114.1 "
	    "223.255.255.255 ::ffff:1.1.1.1 64:ff9b::1.1.1.1 2000::1 "
	    "2001:200::1 2001:db7::1 2001:db9::1 2003::1 2606:4700::1111 "
	    "3ffe::1 3fff:1000::1",
	    "");
}

Test(address, others_may_not)
{
	expect_with(NULL, NULL, "",
	    "0.0.0.0 0.255.255.255 10.0.0.0 10.255.255.255 100.64.0.0 "
	    "100.100.100.200 100.127.255.255 127.0.0.0 127.255.255.255 "
	    "168.63.129.16 169.254.0.0 169.254.169.254 169.254.255.255 "
	    "172.16.0.0 172.31.255.255 192.0.0.0 192.0.0.192 192.0.2.255 "
	    "192.88.99.1 192.168.0.0 192.168.255.255 198.18.0.0 "
	    "198.19.255.255 198.51.100.0 203.0.113.255 224.0.0.0 "
	    "239.255.255.255 240.0.0.0 255.255.255.255");
	expect_with(NULL, NULL, "",
	    ":: ::1 ::127.0.0.1 ::1.1.1.1 ::fffe:1.1.1.1 100::1 1fff::1 "
	    "2001::1 2001:1ff::1 2001:db8::1 2002:101:101:: 3fff::1 "
	    "3fff:fff::1 4000::1 5f00::1 7fff::1 8000::1 fc00::1 "
	    "fd00:ec2::254 fe80::1 fec0::1 ff02::1 ffff::1");
}

Test(address, an_IPv4_address_may_not_hide_in_an_IPv6_one)
{
	expect_with(NULL, NULL, "",
	    "::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 "
	    "64:ff9b::127.0.0.1 64:ff9b::10.0.0.1 64:ff9b:1::1.1.1.1");
	expect_with(NULL, "1.0.0.0/8", "2.0.0.1 ::ffff:2.0.0.1",
	    "1.1.1.1 ::ffff:1.1.1.1 64:ff9b::1.1.1.1");
	expect_with("10.0.0.0/8", NULL,
	    "10.1.1.1 ::ffff:10.1.1.1 64:ff9b::10.1.1.1", "192.168.0.1");
	expect_with(NULL, "64:ff9b::/96", "1.1.1.1", "64:ff9b::1.1.1.1");
}

Test(address, the_longest_network_decides)
{
	expect_with("127.0.0.1", "127.0.0.0/8", "127.0.0.1", "127.0.0.2");
	expect_with("10.0.0.0/9,10.128.0.0/31", "10.64.0.0/10",
	    "10.1.1.1 10.63.0.0 10.128.0.0 10.128.0.1",
	    "10.64.0.0 10.127.0.0 10.128.0.2");
	expect_with("0.0.0.0/0,::/0", NULL, "1.1.1.1 2606::1",
	    "127.0.0.1 10.0.0.1 ::1 fe80::1");
	expect_with("fc00::/7", NULL, "fc00::1 fdff::1", "fe80::1");
	expect_with("1.1.1.1,2606::/16", "0.0.0.0/0,::/0",
	    "1.1.1.1 2606:4700::1", "1.1.1.2 2607::1 127.0.0.1");
}

Test(address, of_two_that_are_as_long_deny_counts_and_allow_before_ours)
{
	expect_with("10.0.0.0/8", NULL, "10.0.0.1", "127.0.0.1");
	expect_with("10.0.0.0/8", "10.0.0.0/8", "", "10.0.0.1");
	expect_with(NULL, "10.0.0.0/8", "11.0.0.1", "10.0.0.1");
}

Test(address, a_name_decides_before_networks)
{
	struct address_rules *rules = address_rules_read(
	    "in.example,.below.example", "bad.example,.bad.example");

	expect(rules, "in.example", true, "10.0.0.1 127.0.0.1 1.1.1.1 ::1");
	expect(rules, "IN.Example.", true, "10.0.0.1");
	expect(rules, "x.below.example", true, "10.0.0.1");
	expect(rules, "x.y.below.example.", true, "10.0.0.1");
	expect(rules, "below.example", false, "10.0.0.1");
	expect(rules, "xin.example", false, "10.0.0.1");
	expect(rules, "x.in.example", false, "10.0.0.1");
	expect(rules, "in.example.org", false, "10.0.0.1");
	expect(rules, "", false, "10.0.0.1");
	expect(rules, "bad.example", false, "1.1.1.1");
	expect(rules, "BAD.EXAMPLE.", false, "1.1.1.1");
	expect(rules, "x.bad.example", false, "1.1.1.1");
	expect(rules, "notbad.example", true, "1.1.1.1");
	address_rules_free(rules);
	rules = address_rules_read("a.example", "a.example");
	expect(rules, "a.example", false, "1.1.1.1");
	address_rules_free(rules);
}

Test(address, other_families_may_not)
{
	struct address_rules *rules = address_rules_read("a.example", NULL);
	struct sockaddr other = {.sa_family = AF_UNIX};

	cr_assert(!address_is_allowed(rules, "a.example", &other));
	address_rules_free(rules);
}
