package ha

// An operator of a simulated world may have a replica elected that lacks what was
// answered. What it lacks is lost then, and no later master has to have it.

// designate is what an operator orders, and under which epoch; 0: it was refused.
func (s *sim) designate(id int64, unclean bool) int64 {
	if !s.ctl.up || s.ctl.paused {
		return 0
	}
	s.trace("an operator designates %d, unclean %v", id, unclean)
	s.ctl.told = Message{}
	out := s.ctl.c.Step(s.ctl.clock(), Message{Kind: MessageDesignate, From: NoReplica, To: NoReplica, ID: id, Unclean: unclean})
	if unclean && out.Send[0].Refusal == "" {
		s.orders[out.Send[0].Epoch] = id
	}
	s.ctl.output(out)
	if s.ctl.told.Refusal != "" {
		s.trace("refused: %s", s.ctl.told.Refusal)
		return 0
	}
	return s.ctl.told.Epoch
}

// withdraw takes an order back.
func (s *sim) withdraw(id, epoch int64) {
	if !s.ctl.up || s.ctl.paused {
		return
	}
	s.trace("an operator withdraws %d of epoch %d", id, epoch)
	s.ctl.told = Message{}
	s.ctl.output(s.ctl.c.Step(s.ctl.clock(), Message{Kind: MessageWithdraw, From: NoReplica, To: NoReplica, ID: id, Epoch: epoch}))
	if s.ctl.told.Kind != "" && s.ctl.told.Refusal == "" {
		delete(s.orders, epoch)
	}
}

// checkLosses wants an order in force for each unclean election.
func (s *sim) checkLosses(state *ControllerState) {
	for _, l := range state.Losses {
		if l.Epoch > s.topLoss() {
			s.lossEpochs = append(s.lossEpochs, l.Epoch)
			if id, ok := s.orders[l.Epoch]; !ok || id != l.ID {
				s.fail("O: node %d is elected unclean under epoch %d, which nobody has ordered", l.ID, l.Epoch)
			}
		}
	}
}

// topLoss is the epoch of the last unclean election.
func (s *sim) topLoss() int64 {
	if len(s.lossEpochs) == 0 {
		return 0
	}
	return s.lossEpochs[len(s.lossEpochs)-1]
}

// forgive gives up what the elected lacks of what was answered and confirmed, if it was
// elected unclean, or takes the place of one who was, and has not served.
func (s *sim) forgive(n *simNode, epoch int64) {
	loss := s.topLoss()
	if loss <= s.forgiven || loss > epoch {
		return
	}
	s.forgiven = loss
	lacks := func(position int64, rec *simRecord) bool {
		return position > n.disk.end() || n.disk.log[position-1] != rec
	}
	for position, rec := range s.answered {
		if lacks(position, rec) {
			delete(s.answered, position)
		}
	}
	for k, rec := range s.confirmed {
		if lacks(int64(k)+1, rec) {
			s.confirmed = s.confirmed[:k:k]
			break
		}
	}
	s.trace("what node %d lacks is given up, %d are confirmed", n.id, len(s.confirmed))
}
