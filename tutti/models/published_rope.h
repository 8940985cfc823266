// Reads and writes how a config.json turns queries and keys.
#pragma once

#include "tutti/models/published_config.h"
#include "tutti/models/rope_angles.h"

namespace tutti::models {

// The newer spelling is `rope_parameters`, the older one `rope_theta` and `rope_scaling`, with the type under
// `rope_type` or `type`; the objects may have one inside for each kind of layer, which must agree. A file may hold
// several of them, and programs differ in which they read: each must say the same, or with `model` what it does. Types
// other than default, linear, llama3, yarn and proportional, heads that are turned in part by others, and numbers that
// no angles can be computed with, are noted. `theta` is the class's default of the base.
RopeConfig read_rope(double theta, PublishedConfig& file, const RopeConfig* model);

// The angles of one kind of layers, "full_attention" or "sliding_attention", of a class whose kinds differ: those under
// the kind in `rope_parameters`, or the base under `theta_key`, and where the kind `takes_scaling` the older
// `rope_scaling`. Noted is what read_rope() notes, and with that kind objects without kinds.
struct RopeOfKind {
  const char *kind, *theta_key;
  double theta;  // the class's default
  bool takes_scaling;
};
RopeConfig read_rope_of_kind(const RopeOfKind& of, PublishedConfig& file);

class PublishedKeys;

// The keys of an object in rope_parameters.
PublishedKeys rope_keys(const RopeConfig& rope);

// Writes all spellings. Divisors, which config.json does not have, stand there as the llama3 scaling that they are, if
// it blends from 1 to 4 turns of a number of positions that is a power of 2. Others are not written.
void write_rope(const RopeConfig& rope, int64_t head_dim, PublishedKeys& keys);

}  // namespace tutti::models
