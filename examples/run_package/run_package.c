/* Runs a package from C: describes it, calls it once, prints its results.
 *
 *   run_package FILE [NAME=SIZE]...
 *
 * NAME=SIZE chooses a declared size; the others have their least value. Element i of an argument is (i % 7 - 3) / 4,
 * of integers i % 2; narrower floats than f32 are 0, but for bf16. Of each result the sizes, the FNV-1a hash of its bytes and the first element are printed. A
 * function with state is called three times, and the results are those of the last call. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/deploy/tutti_runtime.h"
#include "tutti/deploy/tutti_state.h"

static int fail(const char* what) {
  const tutti_error* error = tutti_last_error();
  fprintf(stderr, "%s: error %d: %s\n", what, (int)error->code, error->text);
  return 1;
}

static size_t item_bytes(tutti_dtype dtype) {
  switch (dtype) {
    case TUTTI_F64:
    case TUTTI_I64:
      return 8;
    case TUTTI_F32:
    case TUTTI_I32:
      return 4;
    case TUTTI_BF16:
    case TUTTI_F16:
    case TUTTI_I16:
      return 2;
    default:
      return 1;
  }
}

static size_t elements(const tutti_tensor* t) {
  size_t n = 1;
  for (int32_t d = 0; d < t->ndim; ++d) n *= (size_t)t->sizes[d];
  return n;
}

static void fill(tutti_tensor* t) {
  for (size_t i = 0; i < elements(t); ++i) {
    const float value = ((float)(i % 7) - 3) / 4;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (t->dtype == TUTTI_F32) ((float*)t->data)[i] = value;
    if (t->dtype == TUTTI_BF16) ((uint16_t*)t->data)[i] = (uint16_t)(bits >> 16); /* exact for these values */
    if (t->dtype == TUTTI_I64) ((int64_t*)t->data)[i] = (int64_t)(i % 2);
    if (t->dtype == TUTTI_I32) ((int32_t*)t->data)[i] = (int32_t)(i % 2);
    if (t->dtype == TUTTI_BOOL || t->dtype == TUTTI_U8) ((uint8_t*)t->data)[i] = (uint8_t)(i % 2);
    if (t->dtype == TUTTI_I8) ((int8_t*)t->data)[i] = (int8_t)(i % 2);
    if (t->dtype == TUTTI_F64) ((double*)t->data)[i] = value;
  }
}

/* The size that the command line gives the name, or `least`. */
static int64_t chosen(const char* name, int64_t least, int argc, char** argv) {
  for (int i = 2; i < argc; ++i) {
    const size_t length = strlen(name);
    if (strncmp(argv[i], name, length) == 0 && argv[i][length] == '=') return strtoll(argv[i] + length + 1, NULL, 10);
  }
  return least;
}

static int call(const tutti_package* package, const tutti_tensor* inputs, int32_t num_inputs,
                const tutti_tensor* outputs, int32_t num_outputs) {
  int32_t num_state = 0;
  tutti_state* state = NULL;
  tutti_code code = tutti_package_num_state(package, &num_state);
  if (code == TUTTI_OK && num_state == 0) code = tutti_package_run(package, inputs, num_inputs, outputs, num_outputs);
  if (code == TUTTI_OK && num_state > 0) code = tutti_state_new(package, &state);
  for (int i = 0; i < 3 && state != NULL && code == TUTTI_OK; ++i)
    code = tutti_state_run(package, state, inputs, num_inputs, outputs, num_outputs);
  tutti_state_free(state);
  return code == TUTTI_OK ? 0 : fail("run");
}

static int run(const tutti_package* package, int argc, char** argv) {
  tutti_package_info about = {sizeof about, NULL, NULL, 0, 0, 0, 0, 0};
  if (tutti_package_describe(package, &about) != TUTTI_OK) return fail("describe");
  printf("%s, made by Tutti %s: %d inputs, %d outputs, %" PRId64 " combinations of sizes\n", about.function,
         about.made_by, (int)about.inputs, (int)about.outputs, about.combinations);
  tutti_tensor* inputs = calloc((size_t)about.inputs + 1, sizeof *inputs);
  tutti_tensor* outputs = calloc((size_t)about.outputs + 1, sizeof *outputs);
  int status = inputs == NULL || outputs == NULL;
  for (int32_t i = 0; !status && i < about.inputs; ++i) {
    tutti_input_info info = {sizeof info, TUTTI_F32, 0, {0}, {0}, {0}, {NULL}, 0};
    if (tutti_package_input(package, i, &info) != TUTTI_OK) status = fail("input");
    inputs[i].dtype = info.dtype;
    inputs[i].ndim = info.ndim;
    for (int32_t d = 0; d < info.ndim; ++d)
      inputs[i].sizes[d] = info.name[d] == NULL ? info.least[d] : chosen(info.name[d], info.least[d], argc, argv);
    inputs[i].data = calloc(elements(&inputs[i]) + 1, item_bytes(info.dtype));
    fill(&inputs[i]);
  }
  if (!status && tutti_package_outputs(package, inputs, about.inputs, outputs, about.outputs) != TUTTI_OK)
    status = fail("outputs");
  for (int32_t k = 0; !status && k < about.outputs; ++k)
    outputs[k].data = calloc(elements(&outputs[k]) + 1, item_bytes(outputs[k].dtype));
  if (!status) status = call(package, inputs, about.inputs, outputs, about.outputs);
  for (int32_t k = 0; !status && k < about.outputs; ++k) {
    uint64_t hash = UINT64_C(14695981039346656037);
    const unsigned char* bytes = outputs[k].data;
    for (size_t i = 0; i < elements(&outputs[k]) * item_bytes(outputs[k].dtype); ++i)
      hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    printf("result %d:", (int)k);
    for (int32_t d = 0; d < outputs[k].ndim; ++d) printf(" %" PRId64, outputs[k].sizes[d]);
    printf(" hash %016" PRIx64, hash);
    if (outputs[k].dtype == TUTTI_F32 && elements(&outputs[k]) > 0) printf(" first %a", (double)*(float*)outputs[k].data);
    printf("\n");
  }
  for (int32_t i = 0; inputs != NULL && i < about.inputs; ++i) free(inputs[i].data);
  for (int32_t k = 0; outputs != NULL && k < about.outputs; ++k) free(outputs[k].data);
  free(inputs);
  free(outputs);
  return status;
}

int main(int argc, char** argv) {
  tutti_package* package;
  int status;
  if (argc < 2) {
    fprintf(stderr, "usage: run_package FILE [NAME=SIZE]...\n");
    return 2;
  }
  if (tutti_package_open(argv[1], NULL, &package) != TUTTI_OK) return fail("open");
  status = run(package, argc, argv);
  tutti_package_close(package);
  return status;
}
