// What members report and how a generation begins, as they travel.
#pragma once

#include "engine/control/recovery.hpp"
#include "schemas/control.capnp.h"

namespace kintsugi {

// `node` and `alive` do not travel: the receiver knows them from the link.
void write_holding(const RankReport& report, schemas::Holding::Builder out);
RankReport read_holding(schemas::Holding::Reader in, NodeId node, bool alive);

void write_transition(const Transition& transition, schemas::Transition::Builder out);
Transition read_transition(schemas::Transition::Reader in);

}  // namespace kintsugi
