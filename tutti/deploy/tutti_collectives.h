/* Packages whose function communicates with other ranks: the program brings the group.
 *
 *   tutti_collectives group = {sizeof group, rank, ranks, my_state, my_run};
 *   if (tutti_package_set_groups(package, &group, 1) != TUTTI_OK) puts(tutti_last_error()->text);
 *   tutti_package_run(package, inputs, 2, outputs, 1);
 *
 * The library tutti_ranks makes such tables over shared memory (tutti/comm/tutti_ranks.h), and programs that link the
 * whole of Tutti take that of comm::CollectivesInC (tutti/comm/collectives_in_c.h), which works over each transport.
 * Others write run() themselves, over whatever moves bytes between their ranks. All ranks make the same calls of a
 * package in the same order; each opens its own file, which tutti_group_info tells. */
#ifndef TUTTI_COLLECTIVES_H
#define TUTTI_COLLECTIVES_H

#include "tutti/deploy/tutti_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* W is the number of ranks, r that of this one. Elements of the input -> of the output: what the output holds. */
typedef enum tutti_collective {
  TUTTI_ALL_REDUCE = 0,            /* n -> n: the reduction of the inputs of all ranks */
  TUTTI_ALL_GATHER_SINGLE = 1,     /* n -> W n: the inputs of all ranks in their order */
  TUTTI_REDUCE_SCATTER_SINGLE = 2, /* W n -> n: part r of the reduction */
  TUTTI_ALL_TO_ALL_SINGLE = 3,     /* W n -> W n: part r of the input of each rank, in their order */
  TUTTI_BROADCAST = 4              /* n -> n: the input of rank `root` */
} tutti_collective;

/* Values are combined in the halving tree over ranks: the first ceil(W/2) ranks, the last floor(W/2) ranks, and so on
 * recursively; bf16, f16 and fp8 are added in f32 and rounded once at the end. Integers wrap. The bits of the live
 * function depend on it (docs/comm.md, "Same bits everywhere"). */
typedef enum tutti_reduce {
  TUTTI_SUM = 0,
  TUTTI_AVG = 1, /* the sum divided by W */
  TUTTI_PRODUCT = 2,
  TUTTI_MIN = 3, /* NaN where a value is NaN, as of max */
  TUTTI_MAX = 4,
  TUTTI_BAND = 5,
  TUTTI_BOR = 6,
  TUTTI_BXOR = 7,
  TUTTI_PREMUL_SUM = 8 /* the sum of the values of each rank times its own `factor` */
} tutti_reduce;

typedef struct tutti_collective_call {
  size_t struct_size;
  tutti_collective collective;
  tutti_dtype dtype;
  tutti_reduce reduce;
  int32_t root;
  double factor;
  const void* input; /* does not overlap the output */
  void* output;
  int64_t input_count, output_count; /* elements */
  char* error;                       /* where run() may say what went wrong, ended by a zero byte */
  size_t error_bytes;
} tutti_collective_call;

/* A group of ranks. run() returns when the output is written: TUTTI_OK, TUTTI_PEER when another rank has died, left or
 * is late, or another code, which becomes that of the call of the package. It is called by the threads that run the
 * package, and by tutti_package_set_groups(). */
typedef struct tutti_collectives {
  size_t struct_size;
  int32_t rank, ranks;
  void* user;
  tutti_code (*run)(void* user, const tutti_collective_call* call);
} tutti_collectives;

typedef struct tutti_group_info {
  size_t struct_size;
  const char* name; /* lives as long as the package */
  int32_t ranks;
  int32_t rank; /* whose file this is; -1: that of all of them */
} tutti_group_info;

/* The number of groups that the function communicates in; 0: none. */
TUTTI_RUNTIME_API tutti_code tutti_package_num_groups(const tutti_package* package, int32_t* count);
TUTTI_RUNTIME_API tutti_code tutti_package_group(const tutti_package* package, int32_t index, tutti_group_info* info);

/* Gives the package its groups, in the order of tutti_package_group(), for the calls that begin from now on. The tables
 * are copied. All ranks of the groups call it, and it compares what they have opened: TUTTI_USAGE, on all of them, when
 * a file is that of another rank, or was not made together with the others. */
TUTTI_RUNTIME_API tutti_code tutti_package_set_groups(tutti_package* package, const tutti_collectives* groups,
                                                      int32_t num_groups);

#ifdef __cplusplus
}
#endif

#endif
