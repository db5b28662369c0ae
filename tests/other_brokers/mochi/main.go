// main serves mochi-mqtt on 127.0.0.1: [-whole-takeover] PORT
package main

import (
	"flag"
	"log"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"
)

// wholeTakeover lets no message in while a session goes to a new connection. Without it mochi-mqtt loses those that
// come after it has copied the session's messages and before it knows the new connection.
type wholeTakeover struct {
	mqtt.HookBase
	lock   sync.RWMutex
	holder atomic.Pointer[mqtt.Client]
}

func (h *wholeTakeover) ID() string { return "whole-takeover" }

func (h *wholeTakeover) Provides(hook byte) bool {
	switch hook {
	case mqtt.OnSessionEstablish, mqtt.OnPacketEncode, mqtt.OnPacketRead, mqtt.OnPacketProcessed:
		return true
	}
	return false
}

func (h *wholeTakeover) OnSessionEstablish(client *mqtt.Client, _ packets.Packet) {
	h.lock.Lock()
	h.holder.Store(client)
}

// OnPacketEncode ends the takeover with CONNACK, which comes when the new connection is known.
func (h *wholeTakeover) OnPacketEncode(client *mqtt.Client, packet packets.Packet) packets.Packet {
	if packet.FixedHeader.Type == packets.Connack && h.holder.CompareAndSwap(client, nil) {
		h.lock.Unlock()
	}
	return packet
}

func (h *wholeTakeover) OnPacketRead(_ *mqtt.Client, packet packets.Packet) (packets.Packet, error) {
	if packet.FixedHeader.Type == packets.Publish {
		h.lock.RLock()
	}
	return packet, nil
}

func (h *wholeTakeover) OnPacketProcessed(_ *mqtt.Client, packet packets.Packet, _ error) {
	if packet.FixedHeader.Type == packets.Publish {
		h.lock.RUnlock()
	}
}

func main() {
	whole := flag.Bool("whole-takeover", false, "let no message in while a session goes to a new connection")
	flag.Parse()
	server := mqtt.New(nil)
	hooks := []mqtt.Hook{new(auth.AllowHook)}
	if *whole {
		hooks = append(hooks, new(wholeTakeover))
	}
	for _, hook := range hooks {
		if err := server.AddHook(hook, nil); err != nil {
			log.Fatal(err)
		}
	}
	listener := listeners.NewTCP(listeners.Config{ID: "t", Address: "127.0.0.1:" + flag.Arg(0)})
	if err := server.AddListener(listener); err != nil {
		log.Fatal(err)
	}
	if err := server.Serve(); err != nil {
		log.Fatal(err)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	<-ended
	server.Close()
}
