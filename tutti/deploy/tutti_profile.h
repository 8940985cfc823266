/* Times of the steps of packaged calls. */
#ifndef TUTTI_PROFILE_H
#define TUTTI_PROFILE_H

#include "tutti/deploy/tutti_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A generated kernel, or a library call such as a matrix product. The texts live as long as the process. */
typedef struct tutti_step {
  size_t struct_size;   /* what the library fills in */
  const char* kernel;   /* the id that traces of the compiled function have for the step */
  const char* ops;      /* the ops of the function that it computes, with commas between them */
  const char* line;     /* the line of the function's source, "" where none is known */
  int64_t begin_ns, ns; /* from the begin of the call; how long the step took */
} tutti_step;

typedef void (*tutti_step_callback)(const tutti_step* step, void* context);

/* Calls that begin from now on report their steps: when a call has ended without an error, `callback` is called for one
 * step after another, on the thread of the call. NULL: calls report nothing, which costs nothing. The callback must not
 * throw, and it may be called by several threads at once when several run the package. At most 16 calls of a process
 * may be profiled at a time; another one returns TUTTI_USAGE. When the function returns, no call uses the callback and
 * the context before it any more: it waits for calls that have begun, and must not be called by a callback. */
TUTTI_RUNTIME_API tutti_code tutti_package_set_profile(tutti_package* package, tutti_step_callback callback,
                                                       void* context);

#ifdef __cplusplus
}
#endif

#endif
