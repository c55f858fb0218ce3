package ha

// A guard is a rule whose loss must be noticed: the test build (tag "mutate") can
// take one away at a time, to see that the simulator catches what then happens.
type guard int

const (
	guardNone         guard = iota
	guardAckBound           // an ack beyond what was sent is refused
	guardAckEpoch           // an ack under another epoch is refused
	guardDistinct           // two connections of one replica are one replica
	guardUnion              // a member that leaves counts until the smaller set is stored
	guardUnknown            // a request whose outcome is unknown keeps the union
	guardJoinOrder          // a joiner counts before the last answer is read
	guardSecondMin          // the smallest number of copies is checked at the answer too
	guardFence              // a replica that has promised an epoch follows no lower one, its receiver neither
	guardPersist            // a promise is durable before it is given
	guardReport             // a log is reported after its receiver has stopped
	guardIncarnation        // what a former incarnation has said does not count
	guardClean              // a member that may have lost records cannot be elected
	guardResume             // a restart ends mastership
	guardMembers            // only members of the set can be elected
	guardLongest            // the longest log of those that answered is elected
	guardPending            // the set stays the old one until the elected confirms
	guardStored             // nothing is said before the state that it stands on is stored
	guardAlterEpoch         // a set change of a former master is refused
	guardSetEpoch           // a set change stands on the set that is stored
	guardLease              // the lease is tested right before each answer
	guardLeaseSent          // a lease runs from before its renewal was sent
	guardLeaseWait          // nobody is elected while a lease may run
	guardRestartWait        // a restarted controller waits for leases it does not know
	guardConfirmFirst       // an elected replica serves after its confirmation was stored
	guardRollCall           // without a state all replicas are heard before anybody is elected
	guardLife               // a registration counts for the life of the controller that has asked for it
	guardBehind             // the first master has at least what the others have
	guardAdopt              // epochs after a state that is lost are above all that was promised
	guardCount              // how many there are
)
