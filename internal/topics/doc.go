// Package topics holds the topics of a broker: the system's own, the ones that
// were created, and the ones that a first send makes after a template.
// Java: TopicConfigManager.
//
// Every change gets a new data version, by which name servers see that they
// have to look again, and is in the file before it is seen by anybody:
//
//	{
//	"dataVersion":{"stateVersion":0,"timestamp":1767323045000,"counter":2},
//	"topicConfigTable":{
//	"orders":{"topicName":"orders","readQueueNums":4, ...}
//	}}
//
// A table without a file forgets its topics. The package registers nothing.
package topics
