/* What the bindings are generated from: the few functions of DPDK that are called as they are, and
 * our shim for the rest. */
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_hash.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_member.h>
#include <rte_mempool.h>
#include <rte_cycles.h>
#include <rte_version.h>

#include "shim.h"
