/* Runs a package whose function communicates, on each of its ranks: joins them, calls it once, prints its results.
 *
 *   tutti launch -n 2 -- run_on_ranks 'block.{rank}' [TRANSPORT]
 *
 * Other launchers do as well, or RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT that are set by hand. Arguments have
 * their least sizes; element i is (i % 7 - 3) / 4. Of each result the sizes and the FNV-1a hash of its bytes are
 * printed. Arguments and results must be f32. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/comm/tutti_ranks.h"

static int fail(const char* what, const tutti_error* error) {
  fprintf(stderr, "%s: error %d: %s\n", what, (int)error->code, error->text);
  return 1;
}

static size_t elements(const tutti_tensor* t) {
  size_t n = 1;
  for (int32_t d = 0; d < t->ndim; ++d) n *= (size_t)t->sizes[d];
  return n;
}

static int refuse(const char* what, int32_t k, tutti_dtype dtype) {
  fprintf(stderr, "%s %d has dtype %d; this program has values of f32 only\n", what, (int)k, (int)dtype);
  return 1;
}

static void print(int32_t k, const tutti_tensor* t) {
  uint64_t hash = UINT64_C(14695981039346656037);
  const unsigned char* bytes = t->data;
  for (size_t i = 0; i < elements(t) * sizeof(float); ++i) hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
  printf("result %d:", (int)k);
  for (int32_t d = 0; d < t->ndim; ++d) printf(" %" PRId64, t->sizes[d]);
  printf(" hash %016" PRIx64 "\n", hash);
}

static int run(const tutti_package* package) {
  tutti_tensor inputs[8], outputs[8];
  tutti_package_info about = {sizeof about, NULL, NULL, 0, 0, 0, 0, 0};
  if (tutti_package_describe(package, &about) != TUTTI_OK) return fail("describe", tutti_last_error());
  if (about.inputs > 8 || about.outputs > 8) return fprintf(stderr, "more than 8 arguments or results\n"), 1;
  memset(inputs, 0, sizeof inputs);
  memset(outputs, 0, sizeof outputs);
  int status = 0;
  for (int32_t i = 0; !status && i < about.inputs; ++i) {
    tutti_input_info info = {sizeof info, TUTTI_F32, 0, {0}, {0}, {0}, {NULL}, 0};
    if (tutti_package_input(package, i, &info) != TUTTI_OK) status = fail("input", tutti_last_error());
    else if (info.dtype != TUTTI_F32) status = refuse("argument", i, info.dtype);
    inputs[i].dtype = info.dtype;
    inputs[i].ndim = info.ndim;
    memcpy(inputs[i].sizes, info.least, sizeof info.least);
    float* values = calloc(elements(&inputs[i]) + 1, sizeof *values);
    for (size_t e = 0; values != NULL && e < elements(&inputs[i]); ++e) values[e] = ((float)(e % 7) - 3) / 4;
    inputs[i].data = values;
  }
  if (!status && tutti_package_outputs(package, inputs, about.inputs, outputs, about.outputs) != TUTTI_OK)
    status = fail("outputs", tutti_last_error());
  for (int32_t k = 0; !status && k < about.outputs; ++k) {
    if (outputs[k].dtype != TUTTI_F32) status = refuse("result", k, outputs[k].dtype);
    outputs[k].data = calloc(elements(&outputs[k]) + 1, sizeof(float));
  }
  if (!status && tutti_package_run(package, inputs, about.inputs, outputs, about.outputs) != TUTTI_OK)
    status = fail("run", tutti_last_error());
  for (int32_t k = 0; !status && k < about.outputs; ++k) print(k, &outputs[k]);
  for (int32_t i = 0; i < 8; ++i) free(inputs[i].data), free(outputs[i].data);
  return status;
}

/* Opens the file of this rank and gives it the group. */
static int run_in(tutti_ranks* ranks, const char* pattern) {
  char path[4096];
  tutti_package* package = NULL;
  tutti_collectives group;
  tutti_ranks_info info = {sizeof info, 0, 0, NULL, NULL};
  if (tutti_ranks_describe(ranks, &info) != TUTTI_OK) return fail("describe", tutti_ranks_last_error());
  if (tutti_ranks_collectives(ranks, &group) != TUTTI_OK) return fail("collectives", tutti_ranks_last_error());
  const char* here = strstr(pattern, "{rank}");
  if (here == NULL) snprintf(path, sizeof path, "%s", pattern);
  else snprintf(path, sizeof path, "%.*s%d%s", (int)(here - pattern), pattern, (int)info.rank, here + strlen("{rank}"));
  if (tutti_package_open(path, NULL, &package) != TUTTI_OK) return fail("open", tutti_last_error());
  int status = 0;
  if (tutti_package_set_groups(package, &group, 1) != TUTTI_OK) status = fail("set_groups", tutti_last_error());
  if (!status) printf("rank %d of %d over %s\n", (int)info.rank, (int)info.ranks, info.transport);
  if (!status) status = run(package);
  tutti_package_close(package);
  return status;
}

int main(int argc, char** argv) {
  tutti_ranks* ranks;
  tutti_ranks_options options = {sizeof options, 0, 0, NULL, NULL, NULL, 60000};
  if (argc < 2) return fprintf(stderr, "usage: run_on_ranks FILE [TRANSPORT]\n"), 2;
  if (argc > 2) options.transport = argv[2];
  if (tutti_ranks_open(&options, &ranks) != TUTTI_OK) return fail("ranks", tutti_ranks_last_error());
  const int status = run_in(ranks, argv[1]);
  tutti_ranks_close(ranks);
  return status;
}
