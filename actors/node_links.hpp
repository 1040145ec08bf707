// The links of the cluster's members.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/ids.hpp"
#include "transport/link/link.hpp"

namespace kintsugi::actors {

class NodeLinks {
 public:
  using LinkPointer = std::shared_ptr<transport::Link>;

  void add(NodeId node, LinkPointer link) { links_[node] = std::move(link); }
  void remove(NodeId node) { links_.erase(node); }
  void clear() { links_.clear(); }

  // Null: it is no member (any more).
  transport::Link* find(NodeId node) const {
    const auto at = links_.find(node);
    return at == links_.end() ? nullptr : at->second.get();
  }
  std::optional<NodeId> node_of(const LinkPointer& link) const {
    for (const auto& [node, its] : links_) {
      if (its == link) return node;
    }
    return std::nullopt;
  }
  // Where each comes from.
  std::map<NodeId, std::string> addresses() const {
    std::map<NodeId, std::string> all;
    for (const auto& [node, link] : links_) all[node] = link->peer().address;
    return all;
  }
  auto begin() const { return links_.begin(); }
  auto end() const { return links_.end(); }

 private:
  std::map<NodeId, LinkPointer> links_;
};

}  // namespace kintsugi::actors
