/* Process groups in C: ranks that communicate over shared memory, for packages whose function has collectives.
 *
 *   tutti_ranks* ranks;
 *   if (tutti_ranks_open(NULL, &ranks) != TUTTI_OK) puts(tutti_ranks_last_error()->text);
 *   tutti_collectives group;
 *   tutti_ranks_collectives(ranks, &group);
 *   tutti_package_set_groups(package, &group, 1);
 *   ...
 *   tutti_package_close(package);
 *   tutti_ranks_close(ranks);
 *
 * A rank is a process, started by `tutti launch`, torchrun, mpirun, srun or by hand. Every call ends by the deadline of
 * its group, and an error of another rank says which one it is. Any thread may call any function; the calls of one
 * group run one after another, and all ranks must make them in the same order. pthread_cancel() takes effect after a
 * call, not in it. A fork()ed child has no part in the groups of its parent, where tutti_ranks_close() leaves them
 * alone; it may open others, at other places. Structs begin with their size, which the caller sets to sizeof. */
#ifndef TUTTI_RANKS_H
#define TUTTI_RANKS_H

#include "tutti/deploy/tutti_collectives.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_RANKS_VERSION 1

/* A group of ranks, as one of them sees it. */
typedef struct tutti_ranks tutti_ranks;

/* Zeros and NULL are defaults. Without `ranks` the variables of the launcher tell rank and number of ranks (RANK and
 * WORLD_SIZE, and those of Tutti, MPI and Slurm), and without `url` they tell the place where the ranks meet
 * (MASTER_ADDR and MASTER_PORT). */
typedef struct tutti_ranks_options {
  size_t struct_size;
  int32_t rank, ranks; /* of at most 65536 */
  const char* url;     /* "env://", "tcp://HOST:PORT" or "file:///PATH", a new file for each group */
  const char*
      transport;      /* "shm", or "gloo" or "hier" where the library has them; NULL: TUTTI_TRANSPORT, else the best */
  const char* name;   /* equal on all ranks, for messages; NULL: "0" */
  int64_t timeout_ms; /* of opening and of each call; 0: 600000 */
} tutti_ranks_options;

typedef struct tutti_ranks_info {
  size_t struct_size;
  int32_t rank, ranks;
  const char* name; /* these live as long as the group */
  const char* transport;
} tutti_ranks_info;

/* TUTTI_RANKS_VERSION of the library. */
TUTTI_RUNTIME_API int32_t tutti_ranks_version(void);

/* What the last call of this thread that failed says; never NULL. The functions of a tutti_collectives say it in their
 * call instead. */
TUTTI_RUNTIME_API const tutti_error* tutti_ranks_last_error(void);

/* Opens the group of all ranks. All of them call it, and each may open several groups, one after another or at once, in
 * the same order. TUTTI_PEER, naming ranks, when some do not come by the deadline or die meanwhile.
 * The calls at one place belong together in their order, those that fail as well: where one has ended on a rank with
 * another code than TUTTI_USAGE, those of the ranks that come later end at once with TUTTI_PEER, which says why. Then
 * all of them open a group anew. */
TUTTI_RUNTIME_API tutti_code tutti_ranks_open(const tutti_ranks_options* options, tutti_ranks** ranks);

/* Makes groups of some of the ranks of a group. All of its ranks call it; `members` are the ranks of the new group in
 * their order there, and lists of different new groups have no rank in common. A rank without a new group passes no
 * members and gets NULL. Of the options transport, name and timeout_ms count, and are by default those of the group;
 * options may be NULL. */
TUTTI_RUNTIME_API tutti_code tutti_ranks_split(tutti_ranks* ranks, const int32_t* members, int32_t num_members,
                                               const tutti_ranks_options* options, tutti_ranks** part);

TUTTI_RUNTIME_API tutti_code tutti_ranks_describe(const tutti_ranks* ranks, tutti_ranks_info* info);

/* Fills in the table for tutti_package_set_groups(), whatever its struct_size was. It must not be used after
 * tutti_ranks_close(). */
TUTTI_RUNTIME_API tutti_code tutti_ranks_collectives(tutti_ranks* ranks, tutti_collectives* table);

/* Returns when all ranks of the group have called it. */
TUTTI_RUNTIME_API tutti_code tutti_ranks_barrier(tutti_ranks* ranks);

/* Leaves the group, when no thread uses it any more; what it was split into stays. It does not wait: calls that have
 * returned are complete on this rank, and the others get all that they need of it. NULL is allowed.
 * With its last group at a place a process leaves the place, but for two things that it keeps until it ends: rank 0 of
 * several ranks the store that it serves there, as another rank may be opening the next group already (a thread and
 * five descriptors), and other ranks their connection to the store of a launcher (one descriptor). */
TUTTI_RUNTIME_API void tutti_ranks_close(tutti_ranks* ranks);

#ifdef __cplusplus
}
#endif

#endif
