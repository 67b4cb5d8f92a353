/* See shim.h. */

/* For sets of CPUs. */
#define _GNU_SOURCE

#include <string.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>
#include <rte_member.h>
#include <rte_telemetry.h>
#include <rte_version.h>

#include "shim.h"

/* Rust reads and writes these fields with these widths: a release that changes one stops here. */
#define WIDTH(field, bytes)                                                                        \
	_Static_assert(sizeof(((struct rte_mbuf *)0)->field) == (bytes), "rte_mbuf." #field)
WIDTH(buf_addr, sizeof(void *));
WIDTH(data_off, 2);
WIDTH(nb_segs, 2);
WIDTH(port, 2);
WIDTH(pkt_len, 4);
WIDTH(data_len, 2);
WIDTH(buf_len, 2);
WIDTH(next, sizeof(void *));
WIDTH(ol_flags, 8);

/*
 * ThreadSanitizer does not see DPDK's own code, by which a thread that is given an mbuf comes after
 * the one that has given it up. Programs that it checks are built with CALUMMA_TSAN, and tell it.
 */
#ifdef CALUMMA_TSAN
void __tsan_acquire(void *object);
void __tsan_release(void *object);
#define ACQUIRE(object) __tsan_acquire(object)
#define RELEASE(object) __tsan_release(object)
#else
#define ACQUIRE(object) ((void)(object))
#define RELEASE(object) ((void)(object))
#endif

static inline void acquire(struct rte_mbuf **mbufs, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		ACQUIRE(mbufs[i]);
}

static inline void release(struct rte_mbuf **mbufs, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		RELEASE(mbufs[i]);
}

uint16_t calumma_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n)
{
	n = rte_eth_rx_burst(port, queue, mbufs, n);
	acquire(mbufs, n);
	return n;
}

int calumma_rx_queue_count(uint16_t port, uint16_t queue)
{
	return rte_eth_rx_queue_count(port, queue);
}

uint16_t calumma_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n)
{
	release(mbufs, n);
	return rte_eth_tx_burst(port, queue, mbufs, n);
}

struct rte_mbuf *calumma_pktmbuf_alloc(struct rte_mempool *pool)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);

	acquire(&mbuf, mbuf != NULL);
	return mbuf;
}

void calumma_pktmbuf_free(struct rte_mbuf *mbuf)
{
	release(&mbuf, 1);
	rte_pktmbuf_free(mbuf);
}

void calumma_pktmbuf_free_bulk(struct rte_mbuf **mbufs, unsigned int n)
{
	release(mbufs, n);
	rte_pktmbuf_free_bulk(mbufs, n);
}

int calumma_pktmbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int n)
{
	int error = rte_pktmbuf_alloc_bulk(pool, mbufs, n);

	acquire(mbufs, error == 0 ? n : 0);
	return error;
}

int calumma_rx_timestamp(int *offset, uint64_t *flag)
{
	_Static_assert(sizeof(rte_mbuf_timestamp_t) == 8, "a timestamp");
	return rte_mbuf_dyn_rx_timestamp_register(offset, flag) == 0 ? 0 : -rte_errno;
}

int calumma_port_info(uint16_t port, struct calumma_port_info *info)
{
	struct rte_eth_dev_info device;
	struct rte_ether_addr mac;
	int error = rte_eth_dev_info_get(port, &device);

	if (error == 0)
		error = rte_eth_macaddr_get(port, &mac);
	if (error != 0)
		return error;
	memset(info, 0, sizeof(*info));
	if (device.driver_name != NULL)
		strncpy(info->driver, device.driver_name, sizeof(info->driver) - 1);
	info->rss = device.flow_type_rss_offloads != 0;
	info->timestamps = (device.rx_offload_capa & RTE_ETH_RX_OFFLOAD_TIMESTAMP) != 0;
	info->min_mtu = device.min_mtu;
	info->max_mtu = device.max_mtu;
	info->max_rx_queues = device.max_rx_queues;
	info->max_tx_queues = device.max_tx_queues;
	info->socket = rte_eth_dev_socket_id(port);
	info->interface_index = device.if_index;
	memcpy(info->mac, mac.addr_bytes, sizeof(info->mac));
	return 0;
}

int calumma_port_configure(uint16_t port, struct calumma_port_config *config)
{
	struct rte_eth_dev_info device;
	struct rte_eth_conf conf;
	uint32_t frame = (config->mtu != 0 ? config->mtu : RTE_ETHER_MTU) + RTE_ETHER_HDR_LEN +
			 2 * RTE_VLAN_HLEN;
	uint64_t fields = RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_SCTP;
	int error = rte_eth_dev_info_get(port, &device);

	if (error != 0)
		return error;
	memset(&conf, 0, sizeof(conf));
	conf.rxmode.mtu = config->mtu;

	/* A frame longer than an mbuf comes and goes as a chain of them, where the device can. */
	conf.txmode.offloads = device.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	if (frame > config->data_room)
		conf.rxmode.offloads = device.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
	if (config->timestamps)
		conf.rxmode.offloads |= device.rx_offload_capa & RTE_ETH_RX_OFFLOAD_TIMESTAMP;

	fields &= device.flow_type_rss_offloads;
	if (config->rss && config->queues > 1 && fields != 0) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = fields;
	}

	error = rte_eth_dev_configure(port, config->queues, config->queues, &conf);
	if (error == 0)
		error = rte_eth_dev_adjust_nb_rx_tx_desc(port, &config->rx_descriptors,
							 &config->tx_descriptors);
	return error;
}

int calumma_port_link(uint16_t port, struct calumma_port_link *link)
{
	struct rte_eth_link device;
	int error;

	memset(&device, 0, sizeof(device));
	error = rte_eth_link_get_nowait(port, &device);
	if (error != 0)
		return error;
	link->up = device.link_status == RTE_ETH_LINK_UP;
	link->full_duplex = device.link_duplex == RTE_ETH_LINK_FULL_DUPLEX;
	link->mbps = device.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN ? 0 : device.link_speed;
	return 0;
}

int calumma_port_stats(uint16_t port, struct calumma_port_stats *stats)
{
	struct rte_eth_stats device;
	int error = rte_eth_stats_get(port, &device);

	if (error != 0)
		return error;
	stats->rx_packets = device.ipackets;
	stats->tx_packets = device.opackets;
	stats->rx_bytes = device.ibytes;
	stats->tx_bytes = device.obytes;
	stats->rx_missed = device.imissed;
	stats->rx_errors = device.ierrors;
	stats->tx_errors = device.oerrors;
	stats->rx_no_mbuf = device.rx_nombuf;
	return 0;
}

int calumma_errno(void)
{
	return rte_errno;
}

uint64_t calumma_tsc(void)
{
	return rte_rdtsc();
}

bool calumma_lcore_has_cpu(uint32_t lcore, uint32_t cpu)
{
	rte_cpuset_t cpus = rte_lcore_cpuset(lcore);

	return cpu < CPU_SETSIZE && CPU_ISSET(cpu, &cpus);
}

uint32_t calumma_lcore_id(void)
{
	return rte_lcore_id();
}

struct rte_member_setsum *calumma_member_create(const struct calumma_member_sketch *sketch)
{
	const struct rte_member_parameters parameters = {
		.name = sketch->name,
		.type = RTE_MEMBER_TYPE_SKETCH,
		.key_len = sketch->key_len,
		/* No sketch uses the seeds, but equal ones are refused. */
		.prim_hash_seed = 1,
		.sec_hash_seed = 2,
		.error_rate = sketch->error_rate,
		.sample_rate = sketch->sample_rate,
		.top_k = sketch->top_k,
		.socket_id = (int)rte_socket_id(),
	};

	return rte_member_create(&parameters);
}

size_t calumma_member_bytes(const struct rte_member_setsum *sketch)
{
	/* Each counter is a 64-bit word. */
	return (size_t)sketch->num_row * sketch->num_col * sizeof(uint64_t);
}

struct rte_hash *calumma_hash_create(const struct calumma_hash *hash)
{
	const struct rte_hash_parameters parameters = {
		.name = hash->name,
		.entries = hash->entries,
		.key_len = hash->key_len,
		.hash_func = rte_hash_crc,
		.socket_id = (int)rte_socket_id(),
	};

	return rte_hash_create(&parameters);
}

struct rte_fib *calumma_fib_create(const struct calumma_fib *fib)
{
	struct rte_fib_conf conf;

	memset(&conf, 0, sizeof(conf));
	conf.type = RTE_FIB_DIR24_8;
	conf.default_nh = fib->no_route;
	conf.max_routes = (int)fib->most_routes;
	conf.dir24_8.nh_sz = RTE_FIB_DIR24_8_2B;
	conf.dir24_8.num_tbl8 = fib->blocks;
	return rte_fib_create(fib->name, SOCKET_ID_ANY, &conf);
}

struct rte_fib6 *calumma_fib6_create(const struct calumma_fib *fib)
{
	struct rte_fib6_conf conf;

	memset(&conf, 0, sizeof(conf));
	conf.type = RTE_FIB6_TRIE;
	conf.default_nh = fib->no_route;
	conf.max_routes = (int)fib->most_routes;
	conf.trie.nh_sz = RTE_FIB6_TRIE_2B;
	conf.trie.num_tbl8 = fib->blocks;
	return rte_fib6_create(fib->name, SOCKET_ID_ANY, &conf);
}

/* Releases differ in the type of an IPv6 address; all of them lay it out as 16 bytes. */

int calumma_fib6_add(struct rte_fib6 *fib, const uint8_t *address, uint8_t depth, uint16_t hop)
{
	return rte_fib6_add(fib, (const void *)address, depth, hop);
}

int calumma_fib6_lookup(struct rte_fib6 *fib, const uint8_t *addresses, uint64_t *hops, int n)
{
	return rte_fib6_lookup_bulk(fib, (void *)(uintptr_t)addresses, hops, n);
}

/* Renamed in 23.03. */
#if RTE_VERSION >= RTE_VERSION_NUM(23, 3, 0, 0)
#define TEL_ADD_DICT rte_tel_data_add_dict_uint
#define TEL_ADD_ARRAY rte_tel_data_add_array_uint
#define TEL_NUMBER RTE_TEL_UINT_VAL
#else
#define TEL_ADD_DICT rte_tel_data_add_dict_u64
#define TEL_ADD_ARRAY rte_tel_data_add_array_u64
#define TEL_NUMBER RTE_TEL_U64_VAL
#endif

int calumma_tel_add_u64(struct rte_tel_data *dictionary, const char *name, uint64_t value)
{
	return TEL_ADD_DICT(dictionary, name, value);
}

int calumma_tel_push_u64(struct rte_tel_data *list, uint64_t value)
{
	return TEL_ADD_ARRAY(list, value);
}

int calumma_tel_start_list(struct rte_tel_data *list)
{
	return rte_tel_data_start_array(list, TEL_NUMBER);
}
