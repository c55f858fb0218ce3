package ha

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// ControllerStore keeps the state of a controller. One goroutine uses it.
type ControllerStore interface {
	// Load returns what was saved last, nil when nothing ever was.
	Load() (*ControllerState, error)
	// Save stores a state, durably and as a whole, before it returns. After an error
	// Load returns that state, or the one before.
	Save(s ControllerState) error
}

// ControllerServerConfig is what a [ControllerServer] begins with.
type ControllerServerConfig struct {
	Controller ControllerConfig
	Store      ControllerStore
	// OnEvent, when not nil, is told what happens, by the goroutine of Serve. It must
	// not block.
	OnEvent func(ControllerEvent)
}

// ControllerEvent is something that a controller has done, or cannot do.
type ControllerEvent struct {
	State ControllerState // that is stored now
	Lost  int64           // see Controller.Lost
	Stuck Refusal         // see Controller.Stuck
	Err   error           // why nothing can be stored: nobody is elected meanwhile
}

// ControllerServer serves a [Controller] to the replicas of its group. Safe for
// concurrent use.
type ControllerServer struct {
	cfg     ControllerServerConfig
	inbox   chan Message
	orders  chan order
	stopped chan struct{}                   // closed when Serve has ended
	state   atomic.Pointer[ControllerState] // that is stored
	stuck   atomic.Value                    // Refusal, of Controller.Stuck
	conns   atomic.Int64

	mu    sync.Mutex               // guards what follows
	peers map[int64]*controllerEnd // the newest connection on which a replica has spoken
}

// order is what an operator wants.
type order struct {
	message Message
	done    chan orderDone // capacity 1
}

type orderDone struct {
	epoch int64
	err   error
}

// controllerEnd is the controller's end of a connection to a replica.
type controllerEnd struct {
	number int64        // connections count in the order in which they came
	out    chan Message // what does not fit is lost, as on any network
}

// NewControllerServer loads what was stored. Nothing runs before Serve. Errors:
// [ErrBadState], those of the store.
func NewControllerServer(cfg ControllerServerConfig) (*ControllerServer, error) {
	s := &ControllerServer{
		cfg: cfg, inbox: make(chan Message), orders: make(chan order), stopped: make(chan struct{}), peers: make(map[int64]*controllerEnd),
	}
	state, err := cfg.Store.Load()
	if err != nil {
		return nil, err
	}
	c, err := NewController(time.Now(), cfg.Controller, state)
	if err != nil {
		return nil, err
	}
	s.publish(c.State())
	return s, nil
}

func (s *ControllerServer) publish(state ControllerState) { s.state.Store(&state) }

// State is what is stored. It is not to be changed.
func (s *ControllerServer) State() *ControllerState { return s.state.Load() }

// Stuck says why nobody is elected before an operator has ordered that: see
// [Controller.Stuck].
func (s *ControllerServer) Stuck() Refusal {
	why, _ := s.stuck.Load().(Refusal)
	return why
}

// Designate has a replica elected, if the rules allow it; unclean: even if answered
// messages are lost by it. It returns when the election has begun, and under which epoch,
// not when it has ended. The order is over when a later epoch begins, with the life of
// the controller, and by Withdraw. Errors: ErrNotDesignated with the reason, a
// [NotDesignatedError]; that of ctx, after which an election by the rules may still begin
// when the store, which may take long, has the order already; [ErrStopped]; those of the
// store. An unclean order that the store has is waited for, even beyond ctx.
func (s *ControllerServer) Designate(ctx context.Context, id int64, unclean bool) (epoch int64, err error) {
	return s.order(ctx, Message{Kind: MessageDesignate, From: NoReplica, To: NoReplica, ID: id, Unclean: unclean})
}

// Withdraw takes an order back that Designate has given under an epoch. taken: it was
// carried out before, and the replica is master. Otherwise it never will be. Errors:
// [ErrStopped], with whose life the order is over, too; that of ctx, and the order stands;
// those of the store.
func (s *ControllerServer) Withdraw(ctx context.Context, id, epoch int64) (taken bool, err error) {
	_, err = s.order(ctx, Message{Kind: MessageWithdraw, From: NoReplica, To: NoReplica, ID: id, Epoch: epoch})
	var why *NotDesignatedError
	if errors.As(err, &why) && why.Why == RefusedTaken {
		return true, nil
	}
	return false, err
}

// order carries out what an operator wants. Once it is with the controller it is waited
// for when answered messages may be lost by it: what becomes of it is to be known.
func (s *ControllerServer) order(ctx context.Context, m Message) (int64, error) {
	o := order{message: m, done: make(chan orderDone, 1)}
	select {
	case s.orders <- o:
	case <-s.stopped:
		return 0, fmt.Errorf("ha: the controller: %w", ErrStopped)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	over := ctx.Done()
	if m.Unclean || m.Kind == MessageWithdraw {
		over = nil
	}
	select {
	case d := <-o.done:
		return d.epoch, d.err
	case <-over:
		return 0, ctx.Err()
	}
}

// Stopped is closed when Serve has ended.
func (s *ControllerServer) Stopped() <-chan struct{} { return s.stopped }

// Serve takes the connections of replicas until ctx ends, or the listener fails, which
// it returns. It closes the listener, and returns when all connections have ended. It is called once.
func (s *ControllerServer) Serve(ctx context.Context, l net.Listener) error {
	defer close(s.stopped)
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // Accept returns its error
	defer stop()
	all.Go(func() { s.control(ctx) })
	err := s.accept(ctx, l, &all)
	cancel()
	_ = l.Close() // it has failed, or is closed already
	all.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (s *ControllerServer) accept(ctx context.Context, l net.Listener, all *sync.WaitGroup) error {
	for number := int64(1); ; number++ {
		conn, err := l.Accept()
		switch {
		case err == nil && s.conns.Load() < maxConns:
			s.conns.Add(1)
			all.Go(func() { s.serve(ctx, conn, number) })
		case err == nil:
			_ = conn.Close() // nothing was said on it
		case ctx.Err() != nil:
			return net.ErrClosed
		default:
			var passing interface{ Temporary() bool }
			if !errors.As(err, &passing) || !passing.Temporary() {
				return fmt.Errorf("ha: accepting replicas at %v: %w", l.Addr(), err)
			}
			if !sleep(ctx, 10*time.Millisecond) {
				return net.ErrClosed
			}
		}
	}
}

// serve serves one connection to its end.
func (s *ControllerServer) serve(ctx context.Context, conn net.Conn, number int64) {
	defer s.conns.Add(-1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // nobody is to be told
	defer stop()
	end := &controllerEnd{number: number, out: make(chan Message, outbox)}
	var writer sync.WaitGroup
	writer.Go(func() {
		defer cancel()
		s.write(ctx, conn, end)
	})
	s.read(ctx, conn, end)
	cancel()
	_ = conn.Close() // nobody is to be told
	writer.Wait()
	s.mu.Lock()
	for id, e := range s.peers {
		if e == end {
			delete(s.peers, id)
		}
	}
	s.mu.Unlock()
}

func (s *ControllerServer) write(ctx context.Context, conn net.Conn, end *controllerEnd) {
	var buf []byte
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-end.out:
			var err error
			if buf, err = AppendMessage(buf[:0], m); err == nil {
				err = writeMessage(conn, buf, s.lease())
			}
			if err != nil {
				return
			}
		}
	}
}

func (s *ControllerServer) lease() time.Duration { return s.cfg.Controller.withDefaults().Lease }

// read reads the messages of one replica until the connection ends, or falls silent.
func (s *ControllerServer) read(ctx context.Context, conn net.Conn, end *controllerEnd) {
	in := bufio.NewReader(conn)
	id := int64(NoReplica)
	for {
		// A replica renews several times within a lease.
		if conn.SetReadDeadline(time.Now().Add(4*s.lease())) != nil {
			return
		}
		m, err := ReadMessage(in)
		if err != nil || m.From < 0 || id != NoReplica && m.From != id {
			return
		}
		id = m.From
		s.mu.Lock()
		// A controller that hung finds connections that were given up meanwhile, and what
		// was said on them: they may be read in any order.
		if p := s.peers[id]; p == nil || p.number < end.number {
			s.peers[id] = end
		}
		s.mu.Unlock()
		select {
		case s.inbox <- m:
		case <-ctx.Done():
			return
		}
	}
}

// control runs the controller. When its state cannot be stored it begins a new life of
// it, as after a crash: what it had in mind is not to be known to anybody.
func (s *ControllerServer) control(ctx context.Context) {
	pause := time.Duration(0)
	for ctx.Err() == nil {
		begun := time.Now()
		err := s.live(ctx)
		if ctx.Err() != nil {
			return
		}
		s.tell(ControllerEvent{State: *s.state.Load(), Err: err})
		if time.Since(begun) > s.lease() {
			pause = 0
		}
		pause = min(max(2*pause, 20*time.Millisecond), time.Second)
		if !sleep(ctx, pause) {
			return
		}
	}
}

func (s *ControllerServer) tell(e ControllerEvent) {
	if s.cfg.OnEvent != nil {
		s.cfg.OnEvent(e)
	}
}

// live is one life of the controller. It ends with an error when nothing can be stored.
func (s *ControllerServer) live(ctx context.Context) error {
	state, err := s.cfg.Store.Load()
	if err != nil {
		return err
	}
	cfg := s.cfg.Controller
	cfg.Life = 1 + rand.Int64N(1<<62)
	c, err := NewController(time.Now(), cfg, state)
	if err != nil {
		return err
	}
	if err := s.cfg.Store.Save(c.State()); err != nil { // a save that failed may have stored it
		return err
	}
	s.publish(c.State())
	lost := int64(0)
	s.stuck.Store(Refusal(""))
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		var due <-chan time.Time
		if at := c.Deadline(); !at.IsZero() {
			timer.Reset(max(0, time.Until(at)))
			due = timer.C
		}
		var out Output
		var call *order
		select {
		case <-ctx.Done():
			return nil
		case m := <-s.inbox:
			out = c.Step(time.Now(), m)
		case o := <-s.orders:
			if o.message.Kind == MessageDesignate && c.knows(o.message.ID) && s.isGone(o.message.ID) {
				o.done <- orderDone{err: &NotDesignatedError{o.message.ID, RefusedAbsent}}
				continue
			}
			call = &o
			out = c.Step(time.Now(), o.message)
		case <-due:
			out = c.Tick(time.Now())
		}
		stuck := c.Stuck()
		news := c.Lost() != lost || stuck != s.Stuck()
		if out.State != nil {
			if err := s.cfg.Store.Save(*out.State); err != nil {
				if call != nil {
					call.done <- orderDone{err: err}
				}
				return err
			}
			s.publish(*out.State)
		}
		s.stuck.Store(stuck)
		if out.State != nil || news {
			s.tell(ControllerEvent{State: *s.state.Load(), Lost: c.Lost(), Stuck: stuck})
		}
		lost = c.Lost()
		s.send(out.Send, call)
	}
}

// isGone tells whether a replica that the controller has heard of in this life is not
// connected.
func (s *ControllerServer) isGone(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peers[id] == nil
}

// send gives messages to whom they are for.
func (s *ControllerServer) send(list []Message, call *order) {
	for _, m := range list {
		if m.To == NoReplica {
			if call != nil {
				done := orderDone{epoch: m.Epoch}
				if m.Refusal != "" {
					done.err = &NotDesignatedError{call.message.ID, m.Refusal}
				}
				call.done <- done
				call = nil
			}
			continue
		}
		s.mu.Lock()
		end := s.peers[m.To]
		s.mu.Unlock()
		if end == nil {
			continue
		}
		select {
		case end.out <- m:
		default:
		}
	}
}
