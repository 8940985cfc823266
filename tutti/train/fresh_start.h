// --fresh: an old run is moved aside once, also when the launcher starts the ranks again.
#pragma once

#include <string>

namespace tutti::train {

struct FreshStart {
  bool is_asked = false;
  // The launcher has started the ranks again. Then a run that this job has begun goes on, and one that it found is
  // still moved aside: the start before may have ended too early for that.
  bool is_restart = false;
  std::string job;  // tells this job from others; empty: unknown
};

}  // namespace tutti::train
