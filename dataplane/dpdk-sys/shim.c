#include <string.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>

#include "shim.h"

uint16_t calumma_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n)
{
	return rte_eth_rx_burst(port, queue, mbufs, n);
}

uint16_t calumma_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n)
{
	return rte_eth_tx_burst(port, queue, mbufs, n);
}

struct rte_mbuf *calumma_pktmbuf_alloc(struct rte_mempool *pool)
{
	return rte_pktmbuf_alloc(pool);
}

void calumma_pktmbuf_free(struct rte_mbuf *mbuf)
{
	rte_pktmbuf_free(mbuf);
}

char *calumma_pktmbuf_append(struct rte_mbuf *mbuf, uint16_t len)
{
	return rte_pktmbuf_append(mbuf, len);
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
	info->max_rx_queues = device.max_rx_queues;
	info->max_tx_queues = device.max_tx_queues;
	info->socket = rte_eth_dev_socket_id(port);
	memcpy(info->mac, mac.addr_bytes, sizeof(info->mac));
	return 0;
}

int calumma_port_configure(uint16_t port, uint16_t queues, uint16_t *rx_descriptors,
			   uint16_t *tx_descriptors)
{
	struct rte_eth_dev_info device;
	struct rte_eth_conf conf;
	int error = rte_eth_dev_info_get(port, &device);

	if (error != 0)
		return error;
	memset(&conf, 0, sizeof(conf));
	conf.rx_adv_conf.rss_conf.rss_hf =
		(RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_SCTP) &
		device.flow_type_rss_offloads;
	if (queues > 1 && conf.rx_adv_conf.rss_conf.rss_hf != 0)
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
	error = rte_eth_dev_configure(port, queues, queues, &conf);
	if (error == 0)
		error = rte_eth_dev_adjust_nb_rx_tx_desc(port, rx_descriptors, tx_descriptors);
	return error;
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

uint32_t calumma_lcore_id(void)
{
	return rte_lcore_id();
}
