/* The state of packages whose function changes tensors from call to call, such as a training step.
 *
 *   tutti_state* state;
 *   if (tutti_state_new(package, &state) != TUTTI_OK) puts(tutti_last_error()->text);
 *   float lr = 0.01f;
 *   tutti_tensor number = {&lr, TUTTI_F32, 0, {0}};
 *   tutti_state_write(state, "number.0.lr", &number);
 *   tutti_state_run(package, state, inputs, 2, &loss, 1);
 *   tutti_state_free(state);
 *
 * A package has as many states as are made; each has memory of its own. A state belongs to one call at a time: a call
 * that finds another one under way in another thread returns TUTTI_USAGE and changes nothing. */
#ifndef TUTTI_STATE_H
#define TUTTI_STATE_H

#include "tutti/deploy/tutti_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_state tutti_state;

typedef struct tutti_state_info {
  size_t struct_size;
  const char* name; /* lives as long as the package */
  tutti_dtype dtype;
  int32_t ndim;
  int64_t sizes[TUTTI_MOST_DIMS];
} tutti_state_info;

/* The number of tensors of a state; 0 when the function has none, and tutti_package_run() runs it. */
TUTTI_RUNTIME_API tutti_code tutti_package_num_state(const tutti_package* package, int32_t* count);
TUTTI_RUNTIME_API tutti_code tutti_package_state(const tutti_package* package, int32_t index, tutti_state_info* info);

/* A state with the values of the file, which may outlive the package. */
TUTTI_RUNTIME_API tutti_code tutti_state_new(const tutti_package* package, tutti_state** state);
/* NULL is allowed. */
TUTTI_RUNTIME_API void tutti_state_free(tutti_state* state);

/* Copies the tensor of this name. `to` and `from` have its dtype and sizes. */
TUTTI_RUNTIME_API tutti_code tutti_state_read(const tutti_state* state, const char* name, const tutti_tensor* to);
TUTTI_RUNTIME_API tutti_code tutti_state_write(tutti_state* state, const char* name, const tutti_tensor* from);

/* tutti_package_run() of a function with state, whose tensors it reads and changes. Where an op fails, what precedes it
 * in the function has been done to them, and nothing that follows it; where the call is refused nothing has changed. */
TUTTI_RUNTIME_API tutti_code tutti_state_run(const tutti_package* package, tutti_state* state,
                                             const tutti_tensor* inputs, int32_t num_inputs,
                                             const tutti_tensor* outputs, int32_t num_outputs);

#ifdef __cplusplus
}
#endif

#endif
