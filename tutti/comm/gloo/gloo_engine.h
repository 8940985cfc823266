// A MessageEngine over connections made by gloo.
#pragma once

#include <sys/types.h>

#include <memory>
#include <vector>

#include "tutti/comm/gloo/handover.h"
#include "tutti/comm/message/message_engine.h"

namespace tutti::comm {

// The mesh is connected to all ranks. pids[p] is the process of rank p on this host, 0 elsewhere; empty: unknown.
std::unique_ptr<MessageEngine> make_gloo_engine(GlooMesh mesh, std::vector<pid_t> pids);

}  // namespace tutti::comm
