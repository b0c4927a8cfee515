/* launch/network.c - routes to hosts, asked of the kernel.
 *
 * A datagram socket that is connected sends nothing, and then has the address of the interface that
 * packets to the other side would leave by.
 */
#include "launch/network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Any; nothing is sent. */
#define PORT 9

/* 0, or getaddrinfo()'s error. */
static int find_address(const char *name, struct sockaddr_in *address_out)
{
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_DGRAM};
    struct addrinfo *found;
    int error = getaddrinfo(name, NULL, &hints, &found);
    if (error) return error;
    memcpy(address_out, found->ai_addr, sizeof *address_out);
    address_out->sin_port = htons(PORT);
    freeaddrinfo(found);
    return 0;
}

/* The address of this machine that packets to the other carry; false when no route leads there. */
static bool find_source(const struct sockaddr_in *other, struct in_addr *source_out)
{
    struct sockaddr_in mine;
    socklen_t size = sizeof mine;
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (s < 0) return false;
    bool found = connect(s, (const struct sockaddr *)other, sizeof *other) == 0 &&
                 getsockname(s, (struct sockaddr *)&mine, &size) == 0;
    close(s);
    if (found) *source_out = mine.sin_addr;
    return found;
}

/* The interface with that address; NULL when there is none. */
static const struct ifaddrs *find_interface(const struct ifaddrs *all, struct in_addr address)
{
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !i->ifa_netmask) continue;
        struct sockaddr_in own;
        memcpy(&own, i->ifa_addr, sizeof own);
        if (own.sin_addr.s_addr == address.s_addr) return i;
    }
    return NULL;
}

static uint32_t host_order(const struct sockaddr *address)
{
    struct sockaddr_in in;
    memcpy(&in, address, sizeof in);
    return ntohl(in.sin_addr.s_addr);
}

/* The interface's own network as "address/bits". */
static void write_subnet(const struct ifaddrs *interface, char *text, size_t size)
{
    uint32_t mask = host_order(interface->ifa_netmask);
    struct in_addr net = {htonl(host_order(interface->ifa_addr) & mask)};
    char address[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &net, address, sizeof address);
    snprintf(text, size, "%s/%d", address, __builtin_popcount(mask));
}

/* Join what is known so far with the way to one more host. */
static void join(yk_network *network, const struct ifaddrs *interface, const yk_host *host,
                 const struct sockaddr_in *address)
{
    char subnet[sizeof network->subnet];
    uint32_t mask = host_order(interface->ifa_netmask), own = host_order(interface->ifa_addr);
    bool on_link = ((ntohl(address->sin_addr.s_addr) ^ own) & mask) == 0;
    write_subnet(interface, subnet, sizeof subnet);
    if (!network->interface[0]) {
        snprintf(network->interface, sizeof network->interface, "%s", interface->ifa_name);
        memcpy(network->subnet, subnet, sizeof subnet);
    } else if (strcmp(network->interface, interface->ifa_name) != 0) {
        snprintf(
            network->note, sizeof network->note,
            "%.60s is reached by %s and other hosts by %s; if ranks do not find each other, set "
            "NCCL_SOCKET_IFNAME and OMPI_MCA_btl_tcp_if_include",
            host->name, interface->ifa_name, network->interface);
    }
    if (!on_link) network->subnet[0] = '\0';
}

/* ---- one machine under two names ---------------------------------------------------------- */

/* All addresses of this machine are one. */
static in_addr_t machine_of(const struct ifaddrs *all, struct in_addr address)
{
    bool loops = ntohl(address.s_addr) >> 24 == IN_LOOPBACKNET;
    return loops || find_interface(all, address) ? htonl(INADDR_LOOPBACK) : address.s_addr;
}

/* machines  (index + 1) of the hosts up to this one; 0: none is known */
static yk_status check_other(const yk_hosts *hosts, const in_addr_t *machines, int index)
{
    const yk_host *host = &hosts->items[index];
    for (int i = 0; i < index; i++) {
        const yk_host *other = &hosts->items[i];
        if (machines[index] == 0 || machines[i] != machines[index]) continue;
        return yk_fail(
            YK_EINVAL, "hosts",
            "%s and %s are the same machine; name it once, with the slots of both: %s:%d",
            other->name, host->name, other->name, other->slots + host->slots);
    }
    return YK_OK;
}

/* ---- all hosts ---------------------------------------------------------------------------- */

static yk_status fail_address(const yk_host *host, int error)
{
    return yk_fail(YK_EINVAL, host->name,
                   "this host's name has no IPv4 address (%s); correct --hosts, or add it to DNS "
                   "or /etc/hosts",
                   gai_strerror(error));
}

/* Join one host, which has ranks; *machine_out is what tells machines apart. */
static yk_status find_way(const yk_host *host, const struct ifaddrs *all, bool must_resolve,
                          yk_network *network, in_addr_t *machine_out)
{
    struct sockaddr_in address;
    struct in_addr source;
    *machine_out = htonl(INADDR_LOOPBACK);
    if (host->is_local) return YK_OK;
    *machine_out = 0;
    int error = find_address(host->name, &address);
    if (error && must_resolve) return fail_address(host, error);
    if (error) {
        snprintf(network->note, sizeof network->note,
                 "%.60s has no IPv4 address here (%s), so the command names no network; a run "
                 "would be refused",
                 host->name, gai_strerror(error));
        return YK_OK;
    }
    *machine_out = machine_of(all, address.sin_addr);
    if (!find_source(&address, &source)) return YK_OK;
    const struct ifaddrs *interface = find_interface(all, source);
    if (interface && !(interface->ifa_flags & IFF_LOOPBACK))
        join(network, interface, host, &address);
    return YK_OK;
}

yk_status yk_network_find(const yk_hosts *hosts, bool must_resolve, yk_network *network_out)
{
    yk_network network = {.interface = ""};
    struct ifaddrs *all = NULL;
    yk_status status = YK_OK;
    in_addr_t *machines = calloc((size_t)hosts->n_items, sizeof *machines);
    if (!machines) return yk_fail(YK_ENOMEM, "hosts", "no memory for %d addresses", hosts->n_items);
    if (getifaddrs(&all) != 0) all = NULL;
    for (int i = 0; status == YK_OK && i < hosts->n_items; i++) {
        if (hosts->items[i].n_ranks == 0) continue;
        status = find_way(&hosts->items[i], all, must_resolve, &network, &machines[i]);
        if (status == YK_OK) status = check_other(hosts, machines, i);
    }
    freeifaddrs(all);
    free(machines);
    YK_TRY(status);
    if (network.note[0]) network.interface[0] = network.subnet[0] = '\0';
    *network_out = network;
    return YK_OK;
}
