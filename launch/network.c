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
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Any; nothing is sent. */
#define PORT 9

static yk_status find_address(const char *name, struct sockaddr_in *address_out)
{
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_DGRAM};
    struct addrinfo *found;
    int error = getaddrinfo(name, NULL, &hints, &found);
    if (error)
        return yk_fail(
            YK_EINVAL, name,
            "this host's name has no IPv4 address (%s); correct --hosts, or add it to DNS "
            "or /etc/hosts",
            gai_strerror(error));
    memcpy(address_out, found->ai_addr, sizeof *address_out);
    address_out->sin_port = htons(PORT);
    freeaddrinfo(found);
    return YK_OK;
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

yk_status yk_network_find(const yk_hosts *hosts, yk_network *network_out)
{
    yk_network network = {.interface = ""};
    struct ifaddrs *all = NULL;
    yk_status status = YK_OK;
    if (getifaddrs(&all) != 0) all = NULL;
    for (int i = 0; status == YK_OK && i < hosts->n_items; i++) {
        const yk_host *host = &hosts->items[i];
        struct sockaddr_in address;
        struct in_addr source;
        if (host->is_local || host->n_ranks == 0) continue;
        status = find_address(host->name, &address);
        if (status != YK_OK || !find_source(&address, &source)) continue;
        const struct ifaddrs *interface = find_interface(all, source);
        if (interface && !(interface->ifa_flags & IFF_LOOPBACK))
            join(&network, interface, host, &address);
    }
    freeifaddrs(all);
    YK_TRY(status);
    if (network.note[0]) network.interface[0] = network.subnet[0] = '\0';
    *network_out = network;
    return YK_OK;
}
