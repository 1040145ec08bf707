@0xc94d1f0be2a75386;
# What a link says about itself: the payload of control frames (transport/link). Owners' messages are other frames.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("kintsugi::schemas");

enum LinkRole {
  node @0;
  client @1;   # kintsugi submit, status, cancel
}

struct LinkControl {
  union {
    hello @0 :LinkHello;      # the dialer's first frame
    welcome @1 :LinkWelcome;  # the listener's answer: the link is up
    refused @2 :Text;         # the listener's other answer: why, for a person
    ping @3 :UInt64;          # answered by the owner, not by the io thread
    pong @4 :UInt64;          # the number of the ping
  }
}

struct LinkHello {
  version @0 :UInt32;
  role @1 :LinkRole;
  incarnation @2 :UInt64;
  name @3 :Text;       # for people: a host name
  proof @4 :Data;      # HMAC-SHA-256 of the cluster's secret over the TLS channel binding
}

struct LinkWelcome {
  incarnation @0 :UInt64;
  proof @1 :Data;      # likewise, with the listener's label
}
