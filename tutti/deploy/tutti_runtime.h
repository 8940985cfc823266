/* The C interface of the runtime of packages: functions that tutti::package() wrote, run without the compiler.
 *
 *   tutti_package* package;
 *   if (tutti_package_open("mlp.tutti", NULL, &package) != TUTTI_OK) puts(tutti_last_error()->text);
 *   tutti_tensor x = {x_data, TUTTI_F32, 2, {4, 16}}, y = {y_data, TUTTI_F32, 2, {4, 8}};
 *   if (tutti_package_run(package, &x, 1, &y, 1) != TUTTI_OK) puts(tutti_last_error()->text);
 *   tutti_package_close(package);
 *
 * Every function returns TUTTI_OK or the code of an error, whose text tutti_last_error() has. Any number of threads may
 * use one package at once; it must be closed by one of them, when none of them uses it any more. Structs that may grow
 * begin with their size, which the caller sets to sizeof: the runtime fills in what both know. */
#ifndef TUTTI_RUNTIME_H
#define TUTTI_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_RUNTIME_VERSION 3
#define TUTTI_MOST_DIMS 8

#if defined(__GNUC__)
#define TUTTI_RUNTIME_API __attribute__((visibility("default")))
#else
#define TUTTI_RUNTIME_API
#endif

typedef enum tutti_code {
  TUTTI_OK = 0,
  TUTTI_USAGE = 1,         /* a call that the caller can mend: other sizes, other dtypes, a null pointer */
  TUTTI_FILE = 2,          /* the file cannot be read */
  TUTTI_DAMAGED = 3,       /* bytes of the file are not those that were written */
  TUTTI_OTHER_VERSION = 4, /* made by another version of Tutti than this runtime */
  TUTTI_PROCESSOR = 5,     /* no code for this processor */
  TUTTI_OUT_OF_MEMORY = 6,
  TUTTI_ENVIRONMENT = 7, /* the system refused something else */
  TUTTI_INTERNAL = 8,    /* a bug of Tutti, please report it */
  TUTTI_PEER = 9         /* another rank of the group has died, left or is late; see tutti_collectives.h */
} tutti_code;

typedef enum tutti_dtype {
  TUTTI_F64 = 0,
  TUTTI_F32 = 1,
  TUTTI_BF16 = 2,
  TUTTI_F16 = 3,
  TUTTI_F8E4M3FN = 4,
  TUTTI_F8E5M2 = 5,
  TUTTI_I64 = 6,
  TUTTI_I32 = 7,
  TUTTI_I16 = 8,
  TUTTI_I8 = 9,
  TUTTI_U8 = 10,
  TUTTI_BOOL = 11 /* one byte, 0 or 1 */
} tutti_dtype;

typedef struct tutti_package tutti_package;

typedef struct tutti_error {
  tutti_code code;
  const char* text; /* until the next call of this thread */
} tutti_error;

/* A tensor in memory of the caller: dense, the last dim fastest, aligned to its elements. */
typedef struct tutti_tensor {
  void* data;
  tutti_dtype dtype;
  int32_t ndim;
  int64_t sizes[TUTTI_MOST_DIMS];
} tutti_tensor;

typedef struct tutti_open_options {
  size_t struct_size;
  int32_t threads; /* that calls of the package use, the caller's among them; 0: TUTTI_THREADS, else the processors */
} tutti_open_options;

typedef struct tutti_package_info {
  size_t struct_size;
  const char* function; /* these live as long as the package */
  const char* made_by;  /* the version of Tutti */
  int32_t inputs, outputs;
  int64_t combinations; /* of declared sizes */
  int64_t file_bytes, constant_bytes;
} tutti_package_info;

/* Dim d of an argument has a size from least[d] to most[d], in steps of step[d]. Dims with the same name have the same
 * size in a call; name[d] is NULL where the size is fixed. */
typedef struct tutti_input_info {
  size_t struct_size;
  tutti_dtype dtype;
  int32_t ndim;
  int64_t least[TUTTI_MOST_DIMS], most[TUTTI_MOST_DIMS], step[TUTTI_MOST_DIMS];
  const char* name[TUTTI_MOST_DIMS];
  int32_t is_written; /* 1: calls write the argument in place; 0: they only read it */
} tutti_input_info;

/* TUTTI_RUNTIME_VERSION of the library. */
TUTTI_RUNTIME_API int32_t tutti_runtime_version(void);

/* What the last call of this thread that failed says; never NULL. */
TUTTI_RUNTIME_API const tutti_error* tutti_last_error(void);

/* Checks every byte of the file and maps it. options may be NULL. */
TUTTI_RUNTIME_API tutti_code tutti_package_open(const char* path, const tutti_open_options* options,
                                                tutti_package** package);
/* NULL is allowed. */
TUTTI_RUNTIME_API void tutti_package_close(tutti_package* package);

TUTTI_RUNTIME_API tutti_code tutti_package_describe(const tutti_package* package, tutti_package_info* info);
TUTTI_RUNTIME_API tutti_code tutti_package_input(const tutti_package* package, int32_t index, tutti_input_info* info);

/* Sets dtype, ndim and sizes of `outputs`, one for each result, for inputs of these dtypes and sizes, whose data is not
 * looked at. */
TUTTI_RUNTIME_API tutti_code tutti_package_outputs(const tutti_package* package, const tutti_tensor* inputs,
                                                   int32_t num_inputs, tutti_tensor* outputs, int32_t num_outputs);

/* Runs the function. The data of `outputs` receive the results; their dtypes and sizes must be those of the results,
 * and they must not overlap the inputs or each other. Inputs that the function writes are written in place; they must
 * not overlap other ones. A function with state is run by tutti_state_run(), see tutti_state.h. */
TUTTI_RUNTIME_API tutti_code tutti_package_run(const tutti_package* package, const tutti_tensor* inputs,
                                               int32_t num_inputs, const tutti_tensor* outputs, int32_t num_outputs);

#ifdef __cplusplus
}
#endif

#endif
