import java.util.Map;
import org.apache.storm.Config;
import org.apache.storm.StormSubmitter;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.BasicOutputCollector;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseBasicBolt;
import org.apache.storm.topology.base.BaseRichSpout;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

/**
 * Submits a topology of two paths: java TwoBolts NAME BURST ROUNDS_DEAR ROUNDS_CHEAP.
 * burst (BURST rows at once, then none) to dear; steady (at most 20 rows under way) to cheap.
 */
public class TwoBolts {
    /** Uses the CPU, not the clock: a row costs the same however the kernel schedules. */
    static long work(int rounds) {
        long x = 1;
        for (int k = 0; k < rounds; k++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
        }
        return x;
    }

    public static class Burst extends BaseRichSpout {
        private final int rows;
        private SpoutOutputCollector out;
        private boolean done;

        Burst(int rows) {
            this.rows = rows;
        }

        @SuppressWarnings("rawtypes")
        @Override
        public void open(Map conf, TopologyContext context, SpoutOutputCollector collector) {
            out = collector;
        }

        @Override
        public void nextTuple() {
            for (int k = 0; k < rows && !done; k++) {
                out.emit(new Values((long) k));
            }
            done = true;
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer to) {
            to.declare(new Fields("n"));
        }
    }

    public static class Steady extends BaseRichSpout {
        private SpoutOutputCollector out;
        private long n;

        @SuppressWarnings("rawtypes")
        @Override
        public void open(Map conf, TopologyContext context, SpoutOutputCollector collector) {
            out = collector;
        }

        @Override
        public void nextTuple() {
            out.emit(new Values(++n), n);
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer to) {
            to.declare(new Fields("n"));
        }
    }

    public static class Work extends BaseBasicBolt {
        private final int rounds;
        private long sum;

        Work(int rounds) {
            this.rounds = rounds;
        }

        @Override
        public void execute(Tuple row, BasicOutputCollector out) {
            sum += work(rounds);
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer to) {}
    }

    public static void main(String[] arguments) throws Exception {
        TopologyBuilder builder = new TopologyBuilder();
        builder.setSpout("burst", new Burst(Integer.parseInt(arguments[1])));
        builder.setSpout("steady", new Steady()).setMaxSpoutPending(20);
        builder.setBolt("dear", new Work(Integer.parseInt(arguments[2]))).shuffleGrouping("burst");
        builder.setBolt("cheap", new Work(Integer.parseInt(arguments[3]))).shuffleGrouping("steady");
        Config config = new Config();
        config.setNumWorkers(1);
        config.setStatsSampleRate(1.0);
        StormSubmitter.submitTopology(arguments[0], config, builder.createTopology());
    }
}
