// A UDP scenario in ns-3, read from standard input; tests/worlds/virtual/test_ns3.py runs the same one in our emulator.
//
//     nodes N
//     link A B RATE_BPS DELAY_PS QUEUE_A QUEUE_B     queues in bytes in front of each end's transmitter, 0: no limit
//     route NODE HOST LINK                           frames for HOST leave NODE by link number LINK
//     send TIME_PS HOST TO BYTES ID                  BYTES: all that the frame lasts on the wire
//
// Says, in picoseconds: "got ID TIME" (the last bit is there), "drop ID TIME NODE" (the queue at NODE was full) and, of each
// end of each link, "end LINK NODE PACKETS BYTES" (what its transmitter sent).
#include <cstdint>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"

using namespace ns3;

namespace {

constexpr uint32_t HEADERS = 2 + 20 + 8; // PPP, IPv4, UDP
constexpr uint16_t PORT = 9;
std::map<uint64_t, std::pair<uint64_t, uint64_t>> sent; // by link and end: packets, bytes

uint32_t IdAt(Ptr<const Packet> packet, uint32_t offset)
{
    std::vector<uint8_t> bytes(packet->GetSize());
    packet->CopyData(bytes.data(), bytes.size());
    return bytes.at(offset) << 24 | bytes.at(offset + 1) << 16 | bytes.at(offset + 2) << 8 | bytes.at(offset + 3);
}

void Drop(uint32_t node, Ptr<const Packet> packet)
{
    std::cout << "drop " << IdAt(packet, HEADERS) << ' ' << Simulator::Now().GetPicoSeconds() << ' ' << node << '\n';
}

void Sent(uint64_t end, Ptr<const Packet> packet)
{
    sent[end].first++;
    sent[end].second += packet->GetSize();
}

void Got(Ptr<Socket> socket)
{
    while (Ptr<Packet> packet = socket->Recv())
        std::cout << "got " << IdAt(packet, 0) << ' ' << Simulator::Now().GetPicoSeconds() << '\n';
}

void Send(Ptr<Socket> socket, Ipv4Address to, uint32_t bytes, uint32_t id)
{
    std::vector<uint8_t> payload(bytes - HEADERS);
    for (int i = 0; i < 4; i++)
        payload[i] = id >> (24 - 8 * i);
    socket->SendTo(Create<Packet>(payload.data(), payload.size()), 0, InetSocketAddress(to, PORT));
}

} // namespace

int main()
{
    Time::SetResolution(Time::PS);
    NodeContainer nodes;
    std::vector<std::map<uint32_t, uint32_t>> interfaces; // by link: node -> its interface
    std::vector<Ipv4Address> address;
    std::vector<Ptr<Socket>> sockets;
    Ipv4StaticRoutingHelper routing;
    std::string word;
    while (std::cin >> word) {
        if (word == "nodes") {
            uint32_t count;
            std::cin >> count;
            nodes.Create(count);
            InternetStackHelper stack;
            stack.SetRoutingHelper(routing);
            stack.Install(nodes);
            address.resize(count);
            for (uint32_t i = 0; i < count; i++) {
                sockets.push_back(Socket::CreateSocket(nodes.Get(i), UdpSocketFactory::GetTypeId()));
                sockets.back()->Bind(InetSocketAddress(Ipv4Address::GetAny(), PORT));
                sockets.back()->SetRecvCallback(MakeCallback(&Got));
            }
        } else if (word == "link") {
            uint64_t rate, delay, queue[2];
            uint32_t end[2], number = interfaces.size();
            std::cin >> end[0] >> end[1] >> rate >> delay >> queue[0] >> queue[1];
            PointToPointHelper helper;
            helper.SetDeviceAttribute("DataRate", DataRateValue(DataRate(rate)));
            helper.SetDeviceAttribute("Mtu", UintegerValue(65535));
            helper.SetChannelAttribute("Delay", TimeValue(PicoSeconds(delay)));
            NetDeviceContainer devices = helper.Install(nodes.Get(end[0]), nodes.Get(end[1]));
            interfaces.emplace_back();
            for (int side = 0; side < 2; side++) {
                Ptr<PointToPointNetDevice> device = DynamicCast<PointToPointNetDevice>(devices.Get(side));
                Ptr<DropTailQueue<Packet>> line = CreateObject<DropTailQueue<Packet>>();
                line->SetMaxSize(QueueSize(QueueSizeUnit::BYTES, queue[side] ? queue[side] : 1u << 31));
                line->TraceConnectWithoutContext("Drop", MakeBoundCallback(&Drop, end[side]));
                device->SetQueue(line);
                device->TraceConnectWithoutContext("PhyTxEnd", MakeBoundCallback(&Sent, uint64_t(number) << 32 | end[side]));
                Ptr<Ipv4> ip = nodes.Get(end[side])->GetObject<Ipv4>();
                uint32_t interface = ip->AddInterface(device); // without a traffic control layer: the device's queue is the queue
                Ipv4Address own(0x0a000000u | number << 8 | (side + 1));
                ip->AddAddress(interface, Ipv4InterfaceAddress(own, Ipv4Mask("255.255.255.0")));
                ip->SetUp(interface);
                interfaces.back()[end[side]] = interface;
                address[end[side]] = own;
            }
        } else if (word == "route") {
            uint32_t node, host, link;
            std::cin >> node >> host >> link;
            routing.GetStaticRouting(nodes.Get(node)->GetObject<Ipv4>())
                ->AddHostRouteTo(address[host], interfaces.at(link).at(node));
        } else if (word == "send") {
            uint64_t time;
            uint32_t host, to, bytes, id;
            std::cin >> time >> host >> to >> bytes >> id;
            Simulator::Schedule(PicoSeconds(time), &Send, sockets.at(host), address.at(to), bytes, id);
        } else {
            std::cerr << "unknown word " << word << '\n';
            return 2;
        }
    }
    Simulator::Run();
    for (const auto& [end, counts] : sent)
        std::cout << "end " << (end >> 32) << ' ' << (end & 0xffffffffu) << ' ' << counts.first << ' ' << counts.second << '\n';
    Simulator::Destroy();
    return 0;
}
