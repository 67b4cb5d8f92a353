/* DPDK's inline functions and macros, given a symbol to link to, and its structures reduced to what
 * we use of them. Releases of DPDK may lay these structures out anew: here the compiler sees the
 * headers of the release it builds against, and Rust sees none of them.
 *
 * Functions here are called at most once a burst; what is needed for every packet is read in Rust,
 * through the offsets below. */
#ifndef CALUMMA_SHIM_H
#define CALUMMA_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_hash.h>
#include <rte_mbuf.h>
#include <rte_member.h>
#include <rte_telemetry.h>

/* Where the fields of an mbuf lie. */
enum calumma_mbuf_offset {
	CALUMMA_MBUF_BUF_ADDR = offsetof(struct rte_mbuf, buf_addr),
	CALUMMA_MBUF_DATA_OFF = offsetof(struct rte_mbuf, data_off),
	CALUMMA_MBUF_NB_SEGS = offsetof(struct rte_mbuf, nb_segs),
	CALUMMA_MBUF_PKT_LEN = offsetof(struct rte_mbuf, pkt_len),
	CALUMMA_MBUF_DATA_LEN = offsetof(struct rte_mbuf, data_len),
	CALUMMA_MBUF_BUF_LEN = offsetof(struct rte_mbuf, buf_len),
	CALUMMA_MBUF_PORT = offsetof(struct rte_mbuf, port),
	CALUMMA_MBUF_NEXT = offsetof(struct rte_mbuf, next),
	CALUMMA_MBUF_OL_FLAGS = offsetof(struct rte_mbuf, ol_flags),
};

/* Macros that bindgen can't evaluate by itself. */
enum calumma_constant {
	CALUMMA_MEMPOOL_CACHE_MAX = RTE_MEMPOOL_CACHE_MAX_SIZE,
	CALUMMA_MBUF_PORT_INVALID = RTE_MBUF_PORT_INVALID,
};

/* What a port is and can do. */
struct calumma_port_info {
	char driver[64];
	uint16_t max_rx_queues;
	uint16_t max_tx_queues;
	uint16_t min_mtu;
	uint16_t max_mtu;
	int socket;
	/* Index of the kernel's interface under the device; 0: none. */
	uint32_t interface_index;
	uint8_t mac[6];
	bool rss;
	/* Can stamp packets as they arrive. */
	bool timestamps;
};

/* How a port is to be set up. */
struct calumma_port_config {
	uint16_t queues;
	/* Adjusted to what the device takes. */
	uint16_t rx_descriptors;
	uint16_t tx_descriptors;
	/* 0: 1500 bytes. */
	uint16_t mtu;
	/* Bytes of a packet that one mbuf of the port's pool holds. */
	uint16_t data_room;
	/* Spread flows over several receive queues by their 5-tuples where the device can. */
	bool rss;
	/* Let the device stamp packets as they arrive, where it can. */
	bool timestamps;
};

struct calumma_port_link {
	uint32_t mbps;
	bool up;
	bool full_duplex;
};

/* Totals of a port since it was started. */
struct calumma_port_stats {
	uint64_t rx_packets;
	uint64_t tx_packets;
	uint64_t rx_bytes;
	uint64_t tx_bytes;
	uint64_t rx_missed;
	uint64_t rx_errors;
	uint64_t tx_errors;
	uint64_t rx_no_mbuf;
};

/* A membership library's sketch. */
struct calumma_member_sketch {
	/* NUL-terminated, and no other set summary's. */
	const char *name;
	/* Bytes of a key. */
	uint32_t key_len;
	/* How far a count may be off, as a share of all packets. */
	float error_rate;
	/* The share of packets that are counted. */
	float sample_rate;
	/* Heavy flows that are kept. */
	uint32_t top_k;
};

/* What a hash table is made for. */
struct calumma_hash {
	/* NUL-terminated, and no other hash table's. */
	const char *name;
	/* Keys that it has room for, at most. */
	uint32_t entries;
	/* Bytes of a key. */
	uint32_t key_len;
};

/* What a table of routes is made for. */
struct calumma_fib {
	/* NUL-terminated, and no other table's. */
	const char *name;
	uint32_t most_routes;
	/* Blocks of 256 entries below the first 24 bits. */
	uint32_t blocks;
	/* What an address without a route gives. */
	uint16_t no_route;
};

/* Packets received from a queue into `mbufs`, at most `n`. */
uint16_t calumma_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n);
/* Packets that wait in a receive queue; below 0 where the driver can't tell. */
int calumma_rx_queue_count(uint16_t port, uint16_t queue);
/* Packets of `mbufs` handed to a queue, which owns them from then on. */
uint16_t calumma_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n);
/* A fresh mbuf, or NULL where the pool is empty. */
struct rte_mbuf *calumma_pktmbuf_alloc(struct rte_mempool *pool);
/* Gives an mbuf and its further segments back to their pools. */
void calumma_pktmbuf_free(struct rte_mbuf *mbuf);
/* The same of `n` of them. */
void calumma_pktmbuf_free_bulk(struct rte_mbuf **mbufs, unsigned int n);
/* Fills `mbufs` with `n` fresh mbufs: 0, or an error number where the pool has fewer: none then. */
int calumma_pktmbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int n);
/* Finds or makes the field of mbufs for when they were received, 8 bytes at `offset`, and the flag
 * that says it was filled in. 0, or a negative error number. */
int calumma_rx_timestamp(int *offset, uint64_t *flag);
/* Fills `info`; 0, or a negative error number. */
int calumma_port_info(uint16_t port, struct calumma_port_info *info);
/* Sets the port up, all but its queues' memory. 0, or a negative error number. */
int calumma_port_configure(uint16_t port, struct calumma_port_config *config);
/* Fills `link` without waiting; 0, or a negative error number. */
int calumma_port_link(uint16_t port, struct calumma_port_link *link);
/* Fills `stats`; 0, or a negative error number. */
int calumma_port_stats(uint16_t port, struct calumma_port_stats *stats);
/* A sketch made to measure, or NULL. */
struct rte_member_setsum *calumma_member_create(const struct calumma_member_sketch *sketch);
/* Bytes of a sketch's counters. */
size_t calumma_member_bytes(const struct rte_member_setsum *sketch);
/* An empty hash table that hashes keys by CRC-32C, or NULL. */
struct rte_hash *calumma_hash_create(const struct calumma_hash *hash);
/* An empty table of IPv4 routes with next hops of 15 bits, or NULL. */
struct rte_fib *calumma_fib_create(const struct calumma_fib *fib);
/* An empty table of IPv6 routes with next hops of 15 bits, or NULL. */
struct rte_fib6 *calumma_fib6_create(const struct calumma_fib *fib);
/* Adds a route; `address` has 16 bytes. 0, or a negative error number. */
int calumma_fib6_add(struct rte_fib6 *fib, const uint8_t *address, uint8_t depth, uint16_t hop);
/* Looks up `n` addresses of 16 bytes each. 0, or a negative error number. */
int calumma_fib6_lookup(struct rte_fib6 *fib, const uint8_t *addresses, uint64_t *hops, int n);
/* Adds a number to a dictionary under a name; 0, or a negative error number. */
int calumma_tel_add_u64(struct rte_tel_data *dictionary, const char *name, uint64_t value);
/* Adds a number to a list of such; 0, or a negative error number. */
int calumma_tel_push_u64(struct rte_tel_data *list, uint64_t value);
/* Begins a list of numbers; 0, or a negative error number. */
int calumma_tel_start_list(struct rte_tel_data *list);
/* The calling thread's DPDK error number. */
int calumma_errno(void);
/* The time stamp counter. */
uint64_t calumma_tsc(void);
/* Whether the lcore may run on the CPU. */
bool calumma_lcore_has_cpu(uint32_t lcore, uint32_t cpu);

/* The lcore that the calling thread is, or UINT32_MAX. */
uint32_t calumma_lcore_id(void);

#endif
