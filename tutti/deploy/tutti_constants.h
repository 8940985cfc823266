/* The constants of packages: the tensors that the packaged function holds, such as the weights of a model. Those that
 * were named when the package was made can be replaced while other threads run it:
 *
 *   const char* names[] = {"up", "down"};
 *   tutti_tensor values[] = {{up, TUTTI_F32, 2, {64, 32}}, {down, TUTTI_F32, 2, {8, 64}}};
 *   if (tutti_package_set_constants(package, names, values, 2) != TUTTI_OK) puts(tutti_last_error()->text); */
#ifndef TUTTI_CONSTANTS_H
#define TUTTI_CONSTANTS_H

#include "tutti/deploy/tutti_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_constant_info {
  size_t struct_size;
  const char* name; /* lives as long as the package */
  tutti_dtype dtype;
  int32_t ndim;
  int64_t sizes[TUTTI_MOST_DIMS];
  int64_t bytes;
} tutti_constant_info;

/* The number of named constants, and what they are. */
TUTTI_RUNTIME_API tutti_code tutti_package_num_constants(const tutti_package* package, int32_t* count);
TUTTI_RUNTIME_API tutti_code tutti_package_constant(const tutti_package* package, int32_t index,
                                                    tutti_constant_info* info);

/* Replaces the constants of these names, all of them or, when the call returns an error, none. The values are copied.
 * Calls that run keep the constants with which they began, whose memory is freed when the last of them has ended; calls
 * that begin after this one has returned see all of the new values. Any thread may call it at any time. */
TUTTI_RUNTIME_API tutti_code tutti_package_set_constants(tutti_package* package, const char* const* names,
                                                         const tutti_tensor* values, int32_t count);

#ifdef __cplusplus
}
#endif

#endif
