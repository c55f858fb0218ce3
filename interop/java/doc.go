// Package java tests PocketMQ against what is written in Java: RocketMQ's own
// client and tools (mqadmin) as the clients of a PocketMQ cluster, and, the other
// way round, PocketMQ's clients at RocketMQ's own name server and broker. All of
// them are unmodified, as Maven Central has them; pom.xml says which.
//
//	go test -v -args -java
//
// Without -java the tests are skipped: the first run downloads some hundred
// artifacts, and every run starts Java virtual machines. Without Maven and a JDK
// of version 11 or later they are skipped as well.
//
// The scenarios of clients are in src/main/java: the tests build that, start a
// virtual machine for many scenarios, and tell it by lines of text which to run.
// What a scenario sent, a test checks with our clients, and the other way round.
// docs/interop-java.md says what they show.
package java
