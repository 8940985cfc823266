// Random tensors. Each is a pure function of its key; it depends on no state, order of calls or placement over ranks.
#pragma once

#include "tutti/ops/random_key.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

// Uniformly distributed in [low, high), at multiples of 2^-24 (f64: 2^-32) of the interval. Rounding may give `high`
// itself, in particular for the narrow floats. Dtypes: floats.
Tensor uniform(const Shape& sizes, const RandomKey& key, double low = 0.0, double high = 1.0, DType dtype = DType::f32);

// Normally distributed: mean + deviation * z, |z| < 6.7. Elements 2k and 2k + 1 share two words (Box and Muller, "A
// note on the generation of random normal deviates", 1958). Dtypes: floats.
Tensor normal(const Shape& sizes, const RandomKey& key, double mean = 0.0, double deviation = 1.0,
              DType dtype = DType::f32);

// Integers in [low, high), each with probability 1 / (high - low) to within 2^-32. Dtypes: integers.
// UsageError when high <= low or high - low > 2^31.
Tensor randint(int64_t low, int64_t high, const Shape& sizes, const RandomKey& key, DType dtype = DType::i64);

// The same with the rank's next anonymous key; seed_all restarts their sequence.
Tensor uniform(const Shape& sizes, double low = 0.0, double high = 1.0, DType dtype = DType::f32);
Tensor normal(const Shape& sizes, double mean = 0.0, double deviation = 1.0, DType dtype = DType::f32);
Tensor randint(int64_t low, int64_t high, const Shape& sizes, DType dtype = DType::i64);

}  // namespace tutti
