// What a rank says of its work when it has finished.
#pragma once

#include "engine/pipeline/trainer.hpp"
#include "schemas/control.capnp.h"

namespace kintsugi::actors {

// Work, time, traffic and memory; what identifies the rank and its state is the caller's.
void write_work(const Trainer::Account& account, schemas::RankAccount::Builder out);

}  // namespace kintsugi::actors
